"""Batches of a worker, and what a GPU gets, as far as it can be shown without one."""

import threading

import numpy as np
import pytest
import torch

from beam_jobs.scoring import classifier
from beam_jobs.scoring.classifier import (
    CPU,
    GPU,
    MOST_TEXTS,
    Processor,
    UnitScorer,
    group_by_length,
    place_program,
    score_texts,
)
from model import scorer
from tests.model.corpora import write_finetuned

TEXTS = ["great", "the lamp is awful and broken", "a sturdy kettle", "useless"] * 5


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory):
    return write_finetuned(tmp_path_factory.mktemp("finetuned"))


@pytest.fixture(scope="module")
def folders(finetuned, tmp_path_factory):
    """A scorer's folder by its precision."""
    folders = {precision: tmp_path_factory.mktemp(precision) for precision in ("fp32", "bf16")}
    for precision, folder in folders.items():
        words = ["--model", str(finetuned / "model"), "--output", str(folder)]
        scorer.run([*words, "--precision", precision])
    return folders


def load(folder, monkeypatch, processor):
    monkeypatch.setattr(classifier, "find_processor", lambda: processor)
    return UnitScorer(str(folder), "").load_model()


def test_batches_hold_every_row_once_and_stay_within_their_size():
    ids = [[1] * n for n in (1, 4000, 30, 8000, 2, 500, 500, 500)]
    found = list(group_by_length(ids, CPU.batch_tokens))
    assert sorted(row for rows in found for row in rows) == list(range(len(ids)))
    assert max(len(rows) * max(len(ids[row]) for row in rows) for rows in found) == 8000
    assert [len(rows) for rows in found] == [1, 1, 4, 2]


def test_a_batch_has_no_more_texts_than_the_program_was_exported_for():
    found = [len(rows) for rows in group_by_length([[1, 2]] * 10_000, GPU.batch_tokens)]
    assert found == [MOST_TEXTS, MOST_TEXTS, 10_000 - 2 * MOST_TEXTS]


def test_larger_batches_give_the_same(folders, monkeypatch):
    expected = score_texts(TEXTS, load(folders["fp32"], monkeypatch, Processor("cpu", 8)))
    found = score_texts(TEXTS, load(folders["fp32"], monkeypatch, CPU))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert len(set(np.round(expected[:, 0], 3))) == len(set(TEXTS))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_all_of_a_program_is_moved(folders, precision):
    """A device without numbers stands in: a tensor that stayed behind would raise."""
    exported = torch.export.load(folders[precision] / "scorer.pt2")
    program = place_program(exported, Processor("meta", 64))
    ids = torch.full((3, 7), 5, device="meta")
    found = program(ids, torch.ones_like(ids))
    assert (found.device.type, found.shape) == ("meta", (3, 2))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_gpu_gives_what_the_cpu_gives_from_any_thread(folders, monkeypatch, precision):
    expected = score_texts(TEXTS, load(folders[precision], monkeypatch, CPU))
    gpu, found = load(folders[precision], monkeypatch, GPU), []
    threads = [
        threading.Thread(target=lambda: found.append(score_texts(TEXTS, gpu))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in found:
        np.testing.assert_allclose(one, expected, atol=0.02)
    assert len(found) == 3
