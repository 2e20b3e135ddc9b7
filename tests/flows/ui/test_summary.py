"""A stage's result in a line."""

import pytest

from flows.ui.artifacts import summarize_manifest


@pytest.mark.parametrize(
    ("written", "line"),
    [
        (
            0,
            "80 steps, 4.7 mlm_loss, the loaded weights are kept: by the probe training made them "
            "worse",
        ),
        (64, "80 steps, 4.7 mlm_loss"),
    ],
)
def test_it_says_that_an_adaptation_was_worth_nothing(written, line):
    result = {"steps": 80, "mlm_loss": 4.7, "written_step": written}
    assert summarize_manifest({"stage": "pretraining", "result": result}) == line
