"""What a run tells while a stage is made."""

import pytest

from flows.ui.artifacts import describe_hours


@pytest.mark.parametrize(
    ("stage", "done", "left", "told"),
    [
        ("finetuning", 12, 27_000, "about 7.5 hours left of 5,600 steps; --set finetuning.labels"),
        ("pretraining", 12, 7_200, "about 2.0 hours left of 5,600 steps; --set pretraining.steps"),
        ("finetuning", 9, 27_000, ""),
        ("finetuning", 12, 3_000, ""),
        ("finetuning", 12, None, ""),
        ("corpus", 12, 27_000, ""),
    ],
)
def test_a_training_of_hours_is_told_after_ten_steps(stage, done, left, told):
    progress = {"done": done, "total": 5_600, "unit": "steps", "seconds_left": left}
    found = describe_hours(stage, progress)
    assert found.startswith(told)
    assert bool(found) == bool(told)
