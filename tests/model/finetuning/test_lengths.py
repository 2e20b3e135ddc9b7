"""How long inputs are, by the task and by the encoder's training; which windows are trained on."""

import json
import re
from collections import Counter

import numpy as np
import pytest

from amazon_electra.model.config import FinetuningSettings
from amazon_electra.model.finetuning.features import (
    Feature,
    cut_prediction_batches,
    drop_empty_windows,
)
from amazon_electra.model.finetuning.network import choose_max_length
from amazon_electra.model.finetuning.tasks import find_task
from tests.model.corpora import write_electra

SHORT = {"trained_length": 128}


@pytest.mark.parametrize(
    ("task", "fields", "settings", "length", "words"),
    [
        ("polarity", {}, {}, 128, ""),
        ("squad2", {}, {}, 384, ""),
        ("squad2", {"max_position_embeddings": 256}, {}, 256, "take 384, but .* 256 positions"),
        ("squad2", SHORT, {}, 128, "inputs of squad2 take 384, but .* 128 tokens"),
        ("polarity", {"trained_length": 64}, {}, 64, ""),
        ("polarity", {}, {"max_length": 300}, 300, ""),
        ("stars", SHORT, {"max_length": 256}, 128, "max_length is 256, but .* 128"),
    ],
)
def test_length_is_cut_at_the_trained_one(tmp_path, task, fields, settings, length, words):
    """Where nobody asked for a length, a warning comes only where the task needs long inputs."""
    file = write_electra(tmp_path) / "config.json"
    config = json.loads(file.read_text()) | {"max_position_embeddings": 512} | fields
    file.write_text(json.dumps(config))
    given = FinetuningSettings(**settings)
    chosen, warning = choose_max_length(str(tmp_path), find_task(task), given)
    assert chosen == length
    assert bool(warning) == bool(words)
    assert re.search(words, warning or "")


@pytest.mark.parametrize("share", [2.0, 1.0, 0.5, 0.0])
def test_windows_without_an_answer_are_sampled(share):
    windows = [Feature(i, [[7]], [[0]], [1, 2] if i % 5 == 0 else [0, 0]) for i in range(50)]
    kept = drop_empty_windows(windows, share, np.random.default_rng(1))
    counts = Counter(window.target == [0, 0] for window in kept)
    assert (counts[False], counts[True]) == (10, 10 * share)
    assert [window.example for window in kept] == sorted({window.example for window in kept})


def test_short_texts_fill_a_batch_by_tokens():
    lengths = [40, 3, 10, 3, 90, 3, 12, 3]
    features = [Feature(i, [[7] * length], [[0] * length]) for i, length in enumerate(lengths)]

    def cut(*size):
        return [batch.tolist() for batch in cut_prediction_batches(features, *size)]

    assert cut(3) == [[1, 3, 5], [7, 2, 6], [0, 4]]
    assert cut(2, 12) == [[1, 3, 5, 7], [2, 6], [0, 4]]
    assert cut(1, 24) == [[1, 3, 5, 7], [2, 6], [0], [4]]
    assert len(cut(1, 10_000)) == 1
    assert list(cut_prediction_batches([], 3, 12)) == []
