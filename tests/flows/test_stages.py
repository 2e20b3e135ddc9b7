"""What decides the stages of the graph: a change redoes what depends on it and no more."""

from dataclasses import replace

import fsspec
import pytest

from amazon_electra.model import recipes
from tests.flows.calls import call_of

STACK = "pre-trained, and TF-IDF together"


@pytest.fixture
def fingerprints(list_stages):
    def of(*settings, **dump):
        return {n: stage.fingerprint for n, stage in list_stages(*settings, **dump)[1].items()}

    return of


def changed(before, after):
    return {name.split(" · ")[0] for name in before if before[name] != after[name]}


def test_a_setting_redoes_what_depends_on_it_and_no_more(fingerprints):
    before = fingerprints()
    assert len(before) == 6 + 16 + 3
    of_training = {"pre-training", "pre-trained", STACK, "model", "report"}
    assert changed(before, fingerprints("pretraining.steps=9")) == of_training
    every = {name.split(" · ")[0] for name in before}
    assert changed(before, fingerprints("corpus.title=false")) == every - {"dump"}
    idle = ("pretraining.device=cpu", "pretraining.processes=4", "pretraining.keep_checkpoints=3")
    idle += ("finetuning.at_once=1", "engine.workers=3", "engine.kind=flink")
    idle += ("engine.job_endpoint=jobs:8099", "engine.flink_master=manager:8081")
    assert changed(before, fingerprints(*idle)) == set()


@pytest.mark.parametrize(("device", "is_cpu"), [("cpu", True), ("cuda", False)])
def test_on_a_cpu_untrained_arms_are_fine_tuned_beside_pre_training(
    list_stages, tmp_path, device, is_cpu
):
    asked = f"pretraining.device={device}", "finetuning.at_once=2", "pretraining.processes=2"
    store, stages = list_stages(*asked)
    arms = [s.labels["arm"] for s in stages.values() if s.name == "finetuning"]
    beside = ["random"] * 2 + ["pre-trained"] * 2
    later = (beside if is_cpu else ["pre-trained", "random"] * 2) + [STACK] * 2
    assert arms == ["TF-IDF"] * 2 + later, "what takes seconds is answered first"
    training = stages["pre-training"]
    resources = call_of(training, store)["resources"]
    assert ((resources.threads is not None), resources.processes) == (is_cpu, 2)
    others = [stage for stage in stages.values() if stage.labels.get("arm") == "random"]
    assert not any(stage.is_made_of({training.fingerprint}) for stage in others)


def test_pre_training_is_measured_on_dev_reviews_where_there_are_some(list_stages, tmp_path):
    store, stages = list_stages("pretraining.validate_every=7")
    training = stages["pre-training"]
    dev = training.inputs["dev_shards"]
    assert dev.inputs == training.inputs["shards"].inputs
    store.publish(dev, {"sequences": 3}, seconds=1.0)
    call = call_of(training, store)
    assert call["validation"] == store.folder(dev)
    assert call["config"].settings["validate_every"] == "7"
    store.publish(dev, {"sequences": 0}, seconds=1.0)
    assert call_of(training, store)["validation"] is None
    assert call_of(dev, store)["config"].split == "dev"


def test_how_a_dump_is_read_reaches_the_job(list_stages, tmp_path):
    dump = tmp_path / "reviews.csv"
    rows = [f"text {i},{i % 5 + 1},body {i},{i % 5 + 1}\n" for i in range(200)]
    dump.write_text("".join(["text,stars,body,score\n", *rows]))
    settings = ["dump.columns=text=body,stars=score", "dump.encoding=cp1252"]
    settings += ["corpus.languages=es,en", "corpus.near_duplicates=0.8"]
    before = list_stages(dump=dump)[1]
    store, stages = list_stages(*settings, dump=dump)
    config = call_of(stages["corpus"], store)["config"]
    assert (config.columns, config.encoding) == ("text=body,stars=score", "cp1252")
    assert (config.languages, config.near_duplicates) == (("en", "es"), 0.8)
    assert stages["dump"].fingerprint == before["dump"].fingerprint
    assert stages["corpus"].fingerprint != before["corpus"].fingerprint


def test_a_recipe_counts_by_what_it_says(fingerprints, monkeypatch):
    before, small = fingerprints(), recipes.RECIPES["sample"]
    monkeypatch.setitem(
        recipes.RECIPES, "sample", replace(small, finetuning=small.finetuning.replace(n_train=77))
    )
    arms = {"pre-trained", "random", "TF-IDF", STACK}
    assert changed(before, fingerprints()) == {*arms, "model", "report"}
    start = replace(small, pretraining=small.pretraining.replace(initializer_range=0.05))
    monkeypatch.setitem(recipes.RECIPES, "sample", start)
    everything = {"pre-training", "pre-trained", "random", STACK, "model", "report"}
    assert changed(before, fingerprints()) == everything


def test_a_withheld_file_may_lie_in_a_bucket(list_stages):
    fsspec.filesystem("memory").pipe("/evaluation/texts.txt", b"a text of a test\n")
    store, stages = list_stages("corpus.withhold=memory://evaluation/texts.txt")
    assert call_of(stages["corpus"], store)["withhold"] == ["memory:///evaluation/texts.txt"]
