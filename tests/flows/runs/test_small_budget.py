"""A plan says where what it pre-trains is too little to pay, and what the user can do about it."""

from dataclasses import replace

import pytest

from flows.configuration.form import fill_parameters
from flows.runner.stage_runner import Plan
from flows.stages.pretraining import build_pretraining_stage
from flows.store.store import Stage, Store
from flows.ui import plan_page
from flows.ui.plan_page import find_small_budget

SHARDS = Stage("shards", 1, {"max_length": 128})


def plan_pretraining(tmp_path, *settings, **changes):
    stage = build_pretraining_stage(fill_parameters(settings), SHARDS)
    plan = Plan(Store(tmp_path))
    plan(replace(stage, **changes))
    return plan


@pytest.mark.parametrize(
    ("settings", "tokens"), [([], "0.614"), (["pretraining.steps=80000"], None)]
)
def test_a_plan_warns_of_a_small_budget(tmp_path, settings, tokens):
    plan = plan_pretraining(tmp_path, *settings)
    warning = find_small_budget(plan)
    shown = "\n".join(plan_page.list_lines(plan))
    if tokens:
        assert f"with {tokens} M tokens" in warning
        assert warning in shown
    else:
        assert warning is None
        assert "arning" not in shown


def test_loaded_weights_and_steps_that_another_arm_decides_are_not_warned_of(tmp_path):
    for name in ("origin", "base"):
        inputs = {"shards": SHARDS, name: Stage(name, 1, {})}
        assert find_small_budget(plan_pretraining(tmp_path, inputs=inputs)) is None
    stage = build_pretraining_stage(fill_parameters([]), SHARDS)
    equal = {**stage.parameters, "same_flops_as": "0" * 16}
    assert find_small_budget(plan_pretraining(tmp_path, parameters=equal)) is None
