"""Contrastive adaptation in the graph: when it is made, of what, and what it must not read."""

import pytest

from amazon_electra.flows.policy import MIN_FINETUNED
from amazon_electra.model.arms import ADAPTED
from amazon_electra.model.pretraining.input import pairs
from tests.beam_jobs.dumps import review, rows_of, text_of, write_lines
from tests.flows.calls import call_of, cross
from tests.flows.made import publish_corpus

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


@pytest.mark.parametrize("effort", ["full", "quick"])
def test_quick_runs_adapt_and_fine_tune_nothing(list_published, effort):
    states = ["mini-bert{} + logistic regression", "mini-bert{} and TF-IDF together"]
    names = {"TF-IDF", *(one.format("") for one in states)}
    network = f"mini-bert{ADAPTED}, fine-tuned"
    more = {*(one.format(ADAPTED) for one in states), network, f"{network}, and TF-IDF together"}
    _, stages = list_published(f"effort={effort}")
    arms = [stage.labels["arm"] for stage in stages.values() if stage.name == "finetuning"]
    assert {*arms} == (names | more if effort == "full" else names)
    assert (ADAPTATION in stages) == (effort == "full")
    assert [arms[0], arms[1]] == ["TF-IDF"] * 2


@pytest.mark.parametrize(
    ("labels", "settings", "is_finetuned"),
    [
        (MIN_FINETUNED, [], True),
        (MIN_FINETUNED - 4, [], False),
        (MIN_FINETUNED - 4, ["effort=full"], True),
        (MIN_FINETUNED, ["finetuning.labels=50"], False),
        (MIN_FINETUNED - 4, ["finetuning.arms=pre-trained,tfidf"], True),
    ],
)
def test_few_labels_are_not_fine_tuned_unless_somebody_asks(
    list_published, monkeypatch, labels, settings, is_finetuned
):
    monkeypatch.setattr("amazon_electra.flows.policy.MIN_TITLES", 2)
    store, stages = list_published(*settings)
    stars = {f"{split}.{n}": labels // 4 for split in ("pretrain", "test") for n in (1, 5)}
    publish_corpus(store, stages["corpus"], ["Broke at once"] * 2, stars)
    stages = list_published(*settings)[1]
    assert (f"mini-bert{ADAPTED}, fine-tuned · polarity · seed 0" in stages) == is_finetuned
    assert "TF-IDF · polarity · seed 0" in stages


@pytest.mark.parametrize(
    ("titles", "settings", "is_adapted"),
    [
        (["Broke at once"] * 8, [], True),
        (["Broke at once"] * 7 + ["Five Stars"] * 5, [], False),
        ([""] * 20, [], False),
        ([""] * 20, ["pretraining.objective=contrastive"], True),
        (["Broke at once"] * 8, ["pretraining.objective=mlm"], False),
        (["Broke at once"] * 8, ["pretraining.steps=9"], False),
    ],
)
def test_titles_or_the_form_decide(list_published, monkeypatch, titles, settings, is_adapted):
    monkeypatch.setattr("amazon_electra.flows.policy.MIN_TITLES", 8)
    store, stages = list_published(*settings)
    publish_corpus(store, stages["corpus"], titles)
    _, stages = list_published(*settings)
    assert (ADAPTATION in stages) == is_adapted
    assert ("shards" in stages) == (bool(settings) and not is_adapted)


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
