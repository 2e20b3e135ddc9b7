"""Contrastive adaptation in the graph: when it is made, of what, and what it must not read."""

import pytest

from amazon_electra.model.arms import ADAPTED
from amazon_electra.model.pretraining.input import pairs
from tests.beam_jobs.dumps import review, rows_of, text_of, write_lines
from tests.flows.calls import call_of, cross

ADAPTATION = "adaptation of mini-bert"


@pytest.fixture
def list_published(list_stages, encoder, monkeypatch):
    """The store and the stages of a run from the published encoder; its dump has titles enough."""
    monkeypatch.setattr("amazon_electra.flows.policy.MIN_TITLES", 9)

    def of(*settings, **dump):
        start = f"pretraining.start_from={encoder}"
        return list_stages(start, "recipe=published", *settings, **dump)

    return of


def test_a_published_encoder_is_adapted_to_titles_without_shards(list_published):
    store, stages = list_published("pretraining.processes=2", "pretraining.seed=7", "effort=full")
    assert not {"vocabulary", "shards", "dev shards"} & set(stages)
    adaptation = stages[ADAPTATION]
    assert set(adaptation.inputs) == {"corpus", "origin"}
    assert adaptation.takes_accelerator
    call = call_of(adaptation, store)
    assert call["encoder"] == store.folder(stages["origin mini-bert"]) / "encoder"
    assert call["corpus"] == [store.folder(stages["corpus"])]
    assert (call["config"].seed, call["resources"].processes) == (7, 2)
    adapted = stages[f"mini-bert{ADAPTED}, fine-tuned · polarity · seed 0"]
    assert adapted.inputs["encoder"] is adaptation
    assert adaptation.locate(store) == str(store.folder(adaptation) / "encoder")


def test_what_decides_the_result_names_the_stage(list_published):
    def name(*settings):
        asked = ["pretraining.objective=contrastive", *settings]
        return list_published(*asked)[1][ADAPTATION].fingerprint

    assert list_published()[1][ADAPTATION].fingerprint == name()
    assert name() == name("pretraining.device_batch=8")
    assert len({name(), name("pretraining.epochs=2"), name("pretraining.seed=1")}) == 3


def test_no_pair_of_dev_test_or_a_withheld_file_is_trained_on(list_published, tmp_path):
    """The corpus job runs: what it holds out, word by word or nearly, is in no pair."""
    records = [review(n, summary=f"Title number {n}") for n in range(120)]
    near = [review(200 + n, f"{text_of(n, 3)}!!", summary=f"Again {n}") for n in range(120)]
    dump = write_lines(tmp_path / "dump.jsonl", [*records, *near])
    withheld = write_lines(tmp_path / "evaluation.txt", [text_of(n) for n in range(5)])
    store, stages = list_published(f"corpus.withhold={withheld}", dump=dump)
    corpus = stages["corpus"]
    folder = store.folder(corpus)
    folder.mkdir(parents=True)
    cross(corpus).run(store, folder)
    call = call_of(stages[ADAPTATION], store)
    read = pairs.read_pairs(call["corpus"], call["config"].body_tokens)
    rows = [row for row in rows_of(folder) if row["split"] in ("dev", "test")]
    assert len(read) > 50
    assert len(rows) > 10
    held_out = [" ".join(row["sentences"][1:]) for row in rows] + [text_of(n) for n in range(5)]

    def fold(texts):
        return {pairs.fold_words(text) for text in texts}

    assert not fold(read.bodies) & fold(held_out)
