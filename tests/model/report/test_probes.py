"""What a report says of the probe: its curve, which state was written, which arms are unchanged."""

import json

import pytest

from model.report.document import Document
from model.report.probes import build_probe_blocks, warn_of_unchanged_arms


@pytest.fixture
def study(tmp_path):
    """Three pre-trainings; the third has no probe."""
    accuracies = {"seed 0": [78, 79.5, 79], "seed 1": [78, 77, 76], "plain": []}
    entries = []
    for name, values in accuracies.items():
        lines = [json.dumps({"step": 10 * i, "mlm_loss": 4.0}) for i in range(3)]
        lines += [
            json.dumps({"step": 10 * i, "probe_accuracy": value / 100})
            for i, value in enumerate(values)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + '\n{"cut')
        entries.append({"name": name, "metrics": f"{name}.jsonl"})
    entries[0]["written_step"], entries[1]["written_step"] = 10, 0
    return {"pretraining": entries}, tmp_path


def render(blocks):
    document = Document("T", blocks)
    return document.render_markdown(), document.render_html()


def test_the_probe_is_drawn_against_what_training_began_with(study):
    markdown, page = render(build_probe_blocks(*study))
    assert "| seed 0 | 78.0 | 79.5 | 79.0 | step 10 |" in markdown
    assert "| seed 1 | 78.0 | 78.0 | 76.0 | the encoder it began with |" in markdown
    assert "plain" not in markdown
    assert page.count("<svg") == 1
    assert "what seed 0 began with" in page
    assert "what seed 1 began with" not in page, "it began with the same"


def test_without_a_probe_there_is_nothing(study):
    content, folder = study
    assert build_probe_blocks({"pretraining": content["pretraining"][2:]}, folder) == []
    assert build_probe_blocks({}, folder) == []


def test_an_arm_that_was_left_as_published_is_named():
    arms = [
        {"name": "adapted", "written_steps": [0]},
        {"name": "sometimes", "written_steps": [0, 40, 0]},
        {"name": "trained", "written_steps": [40, 30, 20]},
        {"name": "random"},
    ]
    markdown, _ = render(warn_of_unchanged_arms({"arms": arms}))
    assert "adapted is the encoder it began with, unchanged: no state" in markdown
    assert "sometimes is the encoder it began with, unchanged in 2 of its 3 pre-trainings" in (
        markdown
    )
    assert "trained is" not in markdown
    assert "random" not in markdown
