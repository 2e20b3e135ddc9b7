"""What decides the stages of the graph: a change redoes what depends on it and no more."""

from dataclasses import replace

import pytest

from beam_jobs.config import CorpusOptions
from beam_jobs.core.errors import UserError
from beam_jobs.core.settings import read_known_options
from flows.configuration.form import fill_parameters
from flows.domain_adaptation import graph
from flows.runner.stage_runner import Plan
from flows.stages import shards
from flows.store.store import Stage, Store
from model import recipes


@pytest.fixture
def fingerprints(tmp_path):
    store = Store(tmp_path / "store")

    def of(*settings, dump="sample:50"):
        plan = Plan(store)
        graph(fill_parameters(settings, dump={"paths": [str(dump)]}), plan)
        return {stage.label: stage.fingerprint for stage, _ in plan.stages}

    return of


def changed(before, after):
    return {name.split(" · ")[0] for name in before if before[name] != after[name]}


def test_a_setting_redoes_what_depends_on_it_and_no_more(fingerprints):
    before = fingerprints()
    assert len(before) == 6 + 12 + 2
    assert changed(before, fingerprints("pretraining.steps=9")) == {
        "pre-training",
        "pre-trained",
        "model",
        "report",
    }
    assert changed(before, fingerprints("corpus.title=false")) == {
        n.split(" · ")[0] for n in before
    } - {"dump"}
    assert (
        changed(
            before,
            fingerprints(
                "pretraining.device=cpu",
                "pretraining.keep_checkpoints=3",
                "finetuning.at_once=1",
                "corpus.workers=3",
            ),
        )
        == set()
    )


@pytest.mark.parametrize(("device", "is_cpu"), [("cpu", True), ("cuda", False)])
def test_on_a_cpu_untrained_arms_are_fine_tuned_beside_pre_training(tmp_path, device, is_cpu):
    plan = Plan(Store(tmp_path / "store"))
    chosen = [f"pretraining.device={device}", "finetuning.at_once=2"]
    graph(fill_parameters(chosen, dump={"paths": ["sample:50"]}), plan)
    stages = [stage for stage, _ in plan.stages]
    arms = [s.labels["arm"] for s in stages if s.name == "finetuning"]
    assert arms == (
        ["random", "TF-IDF"] * 2 + ["pre-trained"] * 2
        if is_cpu
        else ["pre-trained", "random", "TF-IDF"] * 2
    )
    [training] = [stage for stage in stages if stage.name == "pretraining"]
    words = training.arguments(plan.store, tmp_path)
    assert ("--threads" in words) is is_cpu
    others = [stage for stage in stages if stage.labels.get("arm") == "random"]
    assert all(
        training.fingerprint not in {i.fingerprint for i in s.inputs.values()} for s in others
    )


def test_pre_training_is_measured_on_dev_reviews_where_there_are_some(tmp_path):
    plan = Plan(Store(tmp_path / "store"))
    chosen = ["pretraining.validate_every=7"]
    graph(fill_parameters(chosen, dump={"paths": ["sample:50"]}), plan)
    [training] = [stage for stage, _ in plan.stages if stage.name == "pretraining"]
    dev = training.inputs["dev_shards"]
    assert dev.inputs == training.inputs["shards"].inputs
    plan.store.publish(dev, {"sequences": 3}, seconds=1.0)
    words = training.arguments(plan.store, tmp_path)
    assert words[words.index("--validation") + 1] == str(plan.store.folder(dev))
    assert "validate_every=7" in words
    plan.store.publish(dev, {"sequences": 0}, seconds=1.0)
    words = training.arguments(plan.store, tmp_path)
    assert "--validation" not in words
    assert "validate_every=7" not in words  # nothing would read it
    job = dev.arguments(plan.store, tmp_path / "dev")
    assert job[job.index("--split") + 1] == "dev"


def test_processes_share_the_batch_and_change_no_fingerprint(tmp_path):
    def plan(*settings):
        made = Plan(Store(tmp_path / "store"))
        graph(fill_parameters(settings, dump={"paths": ["sample:50"]}), made)
        [training] = [stage for stage, _ in made.stages if stage.name == "pretraining"]
        return training, training.arguments(made.store, tmp_path)

    one, words = plan("pretraining.device=cpu")
    assert "--processes" not in words
    several, words = plan("pretraining.device=cpu", "pretraining.processes=4")
    assert words[words.index("--processes") + 1] == "4"
    assert several.fingerprint == one.fingerprint
    with pytest.raises(ValueError, match="processes: 3 do not divide the batch of 8"):
        plan("pretraining.processes=3")


@pytest.fixture
def corpus(tmp_path):
    """The words that the corpus job is started with, by the settings of a run."""
    store = Store(tmp_path / "store")

    def of(*settings, dump):
        plan = Plan(store)
        graph(fill_parameters(settings, dump={"paths": [str(dump)]}), plan)
        [stage] = [stage for stage, _ in plan.stages if stage.name == "corpus"]
        return stage.arguments(store, tmp_path)

    return of


def test_how_a_dump_is_read_reaches_the_job_and_counts_only_where_it_is_set(
    fingerprints, corpus, tmp_path
):
    dump = tmp_path / "reviews.csv"
    rows = [f"text {i},{i % 5 + 1},body {i},{i % 5 + 1}\n" for i in range(20)]
    dump.write_text("".join(["text,stars,body,score\n", *rows]))
    settings = (
        "dump.columns=text=body,stars=score",
        "dump.format=delimited",
        "dump.encoding=cp1252",
    )
    chosen = ("corpus.languages=es,en", "corpus.near_duplicates=0.8")
    words = " ".join(corpus(*settings, *chosen, dump=dump))
    assert "--columns text=body,stars=score --format delimited --encoding cp1252" in words
    assert "--languages en es --near_duplicates 0.8" in words
    added = set(words.split()) - set(corpus(dump=dump))
    assert {name for name in added if name.startswith("--")} == {
        *("--columns", "--format", "--encoding"),
        *("--languages", "--near_duplicates"),
    }
    before = fingerprints(dump=dump)
    for setting in (*settings, *chosen):
        assert "corpus" in changed(before, fingerprints(setting, dump=dump))
    assert "dump" not in changed(before, fingerprints(*settings, dump=dump))
    words = corpus(*settings, *chosen, dump=dump)
    read, rest = read_known_options(CorpusOptions, words, "corpus_job", "")
    assert (read.columns, read.format, read.encoding) == (
        "text=body,stars=score",
        "delimited",
        "cp1252",
    )
    assert (read.languages, read.near_duplicates, rest) == (("en", "es"), 0.8, [])


def test_what_can_be_known_at_once_is_told_before_anything_is_made(fingerprints):
    with pytest.raises(UserError, match=r"corpus\.withhold: no file nofile"):
        fingerprints("corpus.withhold=nofile")
    with pytest.raises(
        UserError, match=r"pretraining\.objective=mlm: a whole run adapts an ELECTRA"
    ):
        fingerprints("pretraining.objective=mlm")
    with pytest.raises(UserError, match=r"corpus\.split=.* here train and dev would be empty"):
        fingerprints("corpus.split=pretrain=90,train=0,dev=0,test=10")


def test_general_text_is_searched_for_all_that_is_tested_on(tmp_path):
    (tmp_path / "text.txt").write_text("other text\n")
    store, corpus = Store(tmp_path / "store"), Stage("corpus", 1, {})
    splits = {"pretrain": 9_000_000, "dev": 1, "test": 1_000_000}
    store.publish(corpus, {"splits": splits}, seconds=1.0)
    stage = shards.build_general_shards_stage(
        fill_parameters([]), [tmp_path / "text.txt"], [], corpus, Stage("vocabulary", 1, {}), store
    )
    arguments = stage.arguments(store, tmp_path)
    assert arguments[-2:] == ["--withhold-corpus", str(store.folder(corpus))]


def test_a_recipe_counts_by_what_it_says(fingerprints, monkeypatch):
    before, small = fingerprints(), recipes.RECIPES["sample"]
    monkeypatch.setitem(
        recipes.RECIPES, "sample", replace(small, finetuning=small.finetuning.replace(n_train=77))
    )
    assert changed(before, fingerprints()) == {"pre-trained", "random", "TF-IDF", "model", "report"}
    start = replace(small, pretraining=small.pretraining.replace(initializer_range=0.05))
    monkeypatch.setitem(recipes.RECIPES, "sample", start)
    everything = {"pre-training", "pre-trained", "random", "model", "report"}
    assert changed(before, fingerprints()) == everything
    monkeypatch.setitem(
        recipes.RECIPES, "sample", replace(small, pretraining=small.pretraining.replace(steps=77))
    )
    assert changed(before, fingerprints()) == {"pre-training", "pre-trained", "model", "report"}
