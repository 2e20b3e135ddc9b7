"""Which encoders a run makes for the arms that it was asked for."""

import json
import re

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.policy import list_arms_of_form
from amazon_electra.flows.store.store import Store
from amazon_electra.model.arms import ADAPTED
from tests.end_to_end.test_multilingual import write_dump
from tests.flows.forms import fill_parameters
from tests.flows.made import write_encoder
from tests.model.encoders.published_kinds import write_kind
from tests.served import electra

TRAINING = {"shards", "pre-training"}
REAL = "recipe=published"


@pytest.fixture
def encoders(tmp_path):
    return [write_encoder(tmp_path / name, name.encode()) for name in ("mini-a", "mini-b")]


@pytest.mark.parametrize(
    ("settings", "is_trained"),
    [
        (["recipe=sample", "finetuning.arms=tfidf"], False),
        (["recipe=sample", "finetuning.arms=tfidf", "pretraining.steps=9"], True),
        (["recipe=sample", "finetuning.arms=tfidf,random"], True),
        (["recipe=sample"], True),
        ([REAL, "finetuning.arms=tfidf,origin"], False),
        ([REAL, "finetuning.arms=tfidf,frozen", "pretraining.steps=9"], True),
    ],
)
def test_arms_that_read_no_encoder_train_none(list_stages, encoders, settings, is_trained):
    start = [f"pretraining.start_from={encoders[0]}"] if REAL in settings else []
    _, stages = list_stages(*settings, *start)
    names = {stage.name for stage in stages.values()}
    assert bool({"pretraining", "contrastive-adaptation"} & names) == is_trained
    assert is_trained or not {"vocabulary", "shards"} & names
    assert {"finetuning", "model", "report"} <= names


def test_few_labels_of_a_task_fine_tune_nothing(list_stages, encoders, tmp_path):
    """In an automatic run, though another task has enough of them."""
    rows = [
        f"Lamp {i} works.,{1 + i % 5},{'ab'[i % 2] if i % 9 == 0 else ''}" for i in range(4_000)
    ]
    (tmp_path / "shop.csv").write_text("\n".join(["text,stars,reason", *rows]))
    start = f"pretraining.start_from={encoders[0]}"
    _, stages = list_stages(REAL, start, "dump.labels=reason", dump=tmp_path / "shop.csv")
    tuned = [stage for stage in stages.values() if stage.name == "finetuning"]
    networks = {stage.config.task for stage in tuned if stage.config.arm == "finetuned"}
    assert {stage.config.task for stage in tuned} == {"label:reason", "polarity", "stars"}
    assert networks == {"polarity", "stars"}


def test_further_starts_are_read_beside_the_first(encoders, list_stages):
    pairs = [f"pretraining.start_from={encoders[0]}", f"pretraining.also_start_from={encoders[1]}"]
    pairs += ["pretraining.objective=contrastive"]
    _, stages = list_stages(*pairs, "finetuning.tasks=polarity")
    read = {
        stage.labels["arm"]: stage.inputs["encoder"].label
        for stage in stages.values()
        if stage.name == "finetuning" and "logistic" in stage.labels["arm"]
    }
    assert read["mini-b + logistic regression"] == "origin mini-b"
    encoders = (f"mini-a{ADAPTED}", "mini-a", "mini-b")
    assert read.keys() == {f"{one} + logistic regression" for one in encoders}
    adapted = [s for s in stages.values() if s.name in ("pretraining", "contrastive-adaptation")]
    assert len(adapted) == 1


def test_further_starts_that_no_arm_reads_are_refused(encoders):
    starts = zip(("start_from", "also_start_from"), encoders, strict=True)
    given = [f"pretraining.{name}={place}" for name, place in starts]
    form = fill_parameters([*given, "finetuning.arms=tfidf,origin"], recipe="published")
    with pytest.raises(UserError) as refused:
        list_arms_of_form(form)
    assert refused.value.field == "pretraining.also_start_from"


@pytest.mark.slow
def test_two_encoders_go_all_the_way_and_their_scores_choose(tmp_path, begin_store):
    begin_store(tmp_path / "store")
    dump = write_dump(tmp_path / "shop.csv", range(300))
    kinds = ("XLM-R", "BERT with Unigram, as multilingual E5")
    starts = [
        write_kind(tmp_path / f"tiny-{i}", kind, max_position_embeddings=60 + 20 * (1 - i))
        for i, kind in enumerate(kinds)
    ]
    words = ["--store", tmp_path / "store", "--finetuning.arms", "frozen", "tfidf"]
    words += ["--effort", "quick", "--finetuning.tasks", "polarity"]
    words += ["--start-from", starts[0], "--pretraining.also-start-from", starts[1]]
    ran = electra("run", "--dump", dump, *words)
    assert ran.returncode == 0, ran.stderr
    made = Store(tmp_path / "store").list_manifests()
    arms = {*(f"tiny-{n} + logistic regression" for n in (0, 1)), "TF-IDF"}
    assert sum(one["stage"] == "finetuning" for one in made) == len(arms)
    model = re.search(r"^model +(\S+)", ran.stdout, re.M)[1]
    with open(f"{model}/results.json") as file:
        results = json.load(file)
    assert results["arm"] in arms
    report = re.search(r"^report +(\S+)", ran.stdout, re.M)[1]
    with open(report) as file:
        text = file.read()
    assert all(name in text for name in ("tiny-0", "tiny-1"))
