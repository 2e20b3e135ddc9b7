"""A dump that is added to an adapted published encoder: at which rates that is gone on with, and
what protects it.
"""

import pytest

from beam_jobs.core.errors import UserError
from flows import add_dump
from flows.configuration.form import Addition
from flows.configuration.form_tools import fill_form
from flows.runner.stage_runner import Plan
from tests.flows.calls import call_of
from tests.flows.made import RESULTS, publish


@pytest.fixture
def add_dump_to(list_stages, encoder):
    """The base of an adapted published encoder, its corpus and origin, and the plan of a dump that
    is added to it; of a run without one where `begun` is none.
    """

    def of(*settings, base=(), begun=True):
        start = [f"pretraining.start_from={encoder}", "recipe=published"] if begun else []
        start += ["pretraining.steps=100"] if begun else []
        store, stages = list_stages(*start, *(f"pretraining.{setting}" for setting in base))
        for label, stage in stages.items():
            publish(store, stage)
            if label == "pre-training":
                break
        store.publish(stages["corpus"], {**RESULTS["corpus"], "stars": STARS})
        (store.folder(stages["pre-training"]) / "encoder").mkdir()
        fixed = ("increment.base=last", "increment.steps=5")
        form = fill_form(
            Addition, [*fixed, *settings], dump={"paths": ["sample:70"]}, store=str(store.root)
        )
        plan = Plan(store)
        add_dump.graph(add_dump.prepare_addition(form, plan), plan)
        return store, stages, [stage for stage, _ in plan.stages]

    return of


STARS = {f"{split}.{stars}": 4_000 for split in ("train", "dev", "test") for stars in (1, 5)}


def find_training(stages):
    [training] = [stage for stage in stages if stage.name == "pretraining"]
    return training


def test_a_dump_is_added_to_a_model_that_began_with_a_published_one(add_dump_to, tmp_path):
    arms = "finetuning.arms=pre-trained,base,origin"
    store, stages, planned = add_dump_to(arms)
    base, origin = stages["pre-training"], stages["origin mini-bert"]
    training = find_training(planned)
    assert training.inputs["base"].fingerprint == base.fingerprint
    call = call_of(training, store)
    assert call["start_from"] == store.folder(base) / "encoder"
    assert call["start_generator_from"] is None
    [report] = [stage for stage in planned if stage.name == "report"]
    cells = [stage for stage in planned if stage.name == "finetuning"]
    assert {cell.labels["arm"] for cell in cells} == {"adapted", "base", "mini-bert as published"}
    assert any(
        source.fingerprint == origin.fingerprint for c in cells for source in c.inputs.values()
    )
    assert "from mini-bert" in report.parameters["title"]


@pytest.mark.parametrize(
    ("base", "settings", "rates"),
    [
        (
            [
                "learning_rate=2e-3",
                "head_steps=0.4",
                "trunk_learning_rate=5e-5",
                "origin_average=0.1",
            ],
            [],
            {"learning_rate": "5e-05", "origin_average": "0.1"},
        ),
        (
            ["origin_average=0.1"],
            ["increment.trunk_learning_rate=1e-5", "increment.origin_average=0.2"],
            {"learning_rate": "5e-5", "trunk_learning_rate": "1e-5", "origin_average": "0.2"},
        ),
    ],
)
def test_an_adapted_encoder_is_gone_on_with_at_its_trunks_rate_and_probed(
    add_dump_to, tmp_path, base, settings, rates
):
    store, stages, planned = add_dump_to(*settings, base=base)
    training = find_training(planned)
    call = call_of(training, store)
    adapting = ("objective", "seed", "warmup")
    given = call["config"].settings
    assert {n: v for n, v in given.items() if n not in adapting} == rates
    assert given["warmup"] == "0.1"
    labelled = stages["corpus"]
    assert training.inputs["corpus"].fingerprint == labelled.fingerprint, "the first dump's"
    assert call["probe"] == store.folder(labelled)


def test_a_model_that_began_with_nothing_is_gone_on_with_as_before(add_dump_to, tmp_path):
    store, _, planned = add_dump_to(base=["learning_rate=2e-3"], begun=False)
    training = find_training(planned)
    assert set(training.inputs) == {"base", "dev_shards", "shards"}
    call = call_of(training, store)
    assert call["probe"] is None
    assert call["config"].settings == {"learning_rate": "2e-3", "warmup": "0.1", "seed": "0"}
    with pytest.raises(UserError, match=r"increment\.trunk_learning_rate"):
        add_dump_to("increment.trunk_learning_rate=1e-5", begun=False)
