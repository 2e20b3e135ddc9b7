"""The plan of an addition: what it is compared with, on which tests, and what the base decides."""

import json
import time

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows import add_dump
from amazon_electra.flows.cli.main import attempt, build_parser
from amazon_electra.flows.configuration.form import Addition
from amazon_electra.flows.configuration.form_tools import fill_form
from amazon_electra.flows.runner.stage_runner import Plan
from amazon_electra.flows.stages.arms import list_arms
from amazon_electra.flows.store.stage import ExistingStage
from amazon_electra.flows.store.store import Store
from tests.beam_jobs.dumps import review, write_lines
from tests.flows.calls import call_of
from tests.flows.made import made_run


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def new(tmp_path):
    return str(write_lines(tmp_path / "new.json", [review(1)]))


def planned(store, new, *settings, base="last"):
    form = fill_form(
        Addition, settings, dump={"paths": [new]}, increment={"base": base}, store=str(store.root)
    )
    plan = Plan(store)
    parameters = add_dump.prepare_addition(form, Plan(store))
    add_dump.graph(parameters, plan)
    return parameters, [stage for stage, _ in plan.stages]


def test_the_base_decides_and_its_vocabulary_is_kept(store, new):
    encoder = made_run(
        store.root, "pretraining.learning_rate=3e-4", "vocabulary.size=900", "recipe=small"
    )
    parameters, stages = planned(store, new, "increment.steps=7", "increment.dropout=0.2")
    assert (parameters.recipe, parameters.vocabulary.size) == ("small", 900)
    assert parameters.pretraining.settings == {
        "learning_rate": "3e-4",
        "warmup": "0.1",
        "dropout": "0.2",
    }
    assert [stage.name for stage in stages[:7]] == [
        "dump",
        "corpus",
        "joined-corpus",
        "vocabulary-fit",
        "shards",
        "dev-shards",
        "pretraining",
    ]
    made = {m["stage"]: m["fingerprint"] for m in store.list_manifests()}
    by_name = {stage.name: stage for stage in stages}
    assert by_name["corpus"].inputs["earlier"].fingerprint == made["corpus"]
    assert by_name["shards"].inputs["vocabulary"].fingerprint == made["vocabulary"]
    assert by_name["pretraining"].inputs["base"].fingerprint == encoder
    assert by_name["pretraining"].inputs["dev_shards"] is by_name["dev-shards"]
    assert by_name["dev-shards"].inputs["corpus"].fingerprint == made["corpus"]
    joined = by_name["joined-corpus"]
    assert joined.inputs["earlier"].fingerprint == made["corpus"]
    assert joined.inputs["corpus"] is by_name["corpus"]
    learnt = [s for s in stages if s.name in ("finetuning", "evaluation", "model")]
    assert all(stage.inputs["data"] is joined for stage in learnt)


def test_an_added_dump_takes_its_texts_as_the_base_did(store, new):
    chosen = {"near_duplicates": 0.8, "split_by": "product", "title": False}
    settings = [f"corpus.{name}={value}" for name, value in chosen.items()]
    made_run(store.root, *settings, "dump.stars_scale=0-5")
    parameters, _ = planned(store, new)
    assert parameters.corpus.model_dump(include=chosen) == chosen
    assert parameters.dump.stars_scale == "0-5"
    parameters, _ = planned(store, new, "dump.stars_scale=1-5")
    assert parameters.dump.stars_scale == "1-5"


def test_a_dump_with_nothing_new_leaves_the_model_as_it_is(store, new):
    made_run(store.root)
    _, stages = planned(store, new)
    store.publish(stages[1], {"kept": 0, "splits": {}})
    _, stages = planned(store, new)
    assert [stage.name for stage in stages] == ["dump", "corpus"]


def test_the_steps_are_in_proportion_to_the_new_dump(store, new):
    made_run(store.root)
    for settings, steps in (((), 150), (["increment.replay_ratio=0"], 75)):
        _, stages = planned(store, new, *settings)
        [shards] = [stage for stage in stages if stage.name == "shards"]
        [encoder] = [stage for stage in stages if stage.name == "pretraining"]
        store.publish(shards, {"sequences": 150, "tokens": 19_000})
        call = call_of(encoder, store)
        assert call["config"].steps == steps, "4 epochs, 8 a step, half of them old"
        assert bool(call["replay"]) == ("increment.replay_ratio=0" not in settings)


def known(name):
    return ExistingStage("pretraining", 0, {}, known=name)


def test_what_the_new_model_is_compared_with(store, new):
    made_run(store.root)
    parameters, _ = planned(store, new)
    new_model, base = known("new"), known("base")

    def compared(*others):
        return {
            arm.name: arm.start.encoder.fingerprint
            for arm in list_arms(parameters.chosen_arms, store, new_model, *others)
        }

    assert compared(base) == {"pre-trained": "new", "base": "base"}


@pytest.mark.usefixtures("prefect_home")
def test_a_run_that_begins_again_keeps_its_base(store, new):
    """As one does that was suspended for an approval: meanwhile there are newer models."""
    from prefect import flow

    @flow
    def begins_again(first_seed):
        bases = []
        for seed in (first_seed, first_seed + 1):
            made_run(store.root, f"pretraining.seed={seed}")
            time.sleep(1.1)
            given = {"dump": {"paths": [new]}, "store": str(store.root)}
            form = Addition.model_validate(given)
            bases.append(add_dump.settle_base(form, store).increment.base)
        return bases

    first, again = begins_again(1)
    assert first == again
    assert begins_again(5)[0] != first


def run_command(*words):
    return attempt(build_parser().parse_args(["run", *words]))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--add-to", "last", "--recipe", "small"], "--recipe small: the base's recipe is kept"),
        (["--add-to", "champion"], "the registry has no champion"),
    ],
)
def test_a_mistake_is_told_in_one_line(store, new, capsys, words, told):
    made_run(store.root)
    assert run_command("--dump", new, "--store", str(store.root), "--dry-run", *words) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert told in line


def test_files_that_the_base_withheld_must_be_there_again(store, new, tmp_path):
    evaluation = tmp_path / "evaluation.txt"
    evaluation.write_text("a text\n")
    made_run(store.root, f"corpus.withhold={evaluation}")
    [corpus] = [m for m in store.list_manifests() if m["stage"] == "corpus"]
    folder = store.root / "corpus" / corpus["fingerprint"] / "manifest.json"
    folder.write_text(
        json.dumps({**corpus, "result": {**corpus["result"], "withheld_files": [str(evaluation)]}})
    )
    parameters, stages = planned(store, new)
    assert parameters.corpus.withhold == [str(evaluation)]
    [sentences] = [stage for stage in stages if stage.name == "corpus"]
    assert sentences.parameters["withhold"] == corpus["parameters"]["withhold"]
    evaluation.unlink()
    with pytest.raises(UserError, match=r"increment\.base`.*evaluation\.txt"):
        planned(store, new)
