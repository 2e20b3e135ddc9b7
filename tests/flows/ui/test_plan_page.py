"""A plan lists its stages, complete or to do, and the steps and tokens of each training."""

from dataclasses import replace

from amazon_electra.flows.stages.pretraining import build_pretraining_stage
from amazon_electra.flows.store.group import Group, list_stages
from amazon_electra.flows.store.stage import ExistingStage
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.ui import plan_page
from tests.flows.forms import fill_parameters

SHARDS = ExistingStage("shards", 1, {"max_length": 128})


def plan_stages(store, *stages):
    return list_stages((Group.of(stage) for stage in stages), store)


def test_stages_are_complete_or_to_do_and_a_shared_one_counts_once(tmp_path):
    store = Store(tmp_path)
    training = build_pretraining_stage(fill_parameters(["pretraining.steps=2000"]), SHARDS)
    store.publish(SHARDS, {})
    plan = plan_stages(store, SHARDS, training, SHARDS, training)
    assert plan_page.format_total(plan) == "1 stage to do, 1 complete"
    shards, trained, *_ = plan_page.list_lines(plan)
    assert shards.split() == ["complete", "shards", SHARDS.fingerprint, SHARDS.label]
    assert trained.startswith("to do     pretraining   ")
    assert trained.endswith(f"  {training.label}, 2,000 steps, 2.0 M tokens")
    done = plan_stages(store, SHARDS)
    assert plan_page.format_total(done) == "nothing to do: every stage is complete"


def test_steps_that_another_arm_decides_are_not_told(tmp_path):
    stage = build_pretraining_stage(fill_parameters([]), SHARDS)
    equal = replace(stage, config=stage.config.replace(steps=0, same_flops_as="0" * 16))
    line, _ = plan_page.list_lines(plan_stages(Store(tmp_path), equal))
    assert line.endswith(equal.label)
