"""What `score` and `study` make when they are started as the UI starts them, on what a first run
has left.
"""

import json
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import expect

from tests.browser.test_prefect_ui import open_run

pytestmark = pytest.mark.timeout(2400)

STUDY = {
    "title": "With and without",
    "question": "Is the encoder better than none?",
    "seeds": [0, 1],
    "arms": [
        {"name": "pre-trained", "encoder": "${encoder}"},
        {"name": "random", "encoder": "random", "architecture": "${encoder}"},
    ],
    "tasks": [{"task": "polarity", "data": "${corpus}"}],
    "settings": {"n_train": 30, "n_dev": 20, "n_test": 30, "epochs": 1, "learning_rates": [1e-3]},
}


def test_a_study_of_ones_own_file(servers, page, picture, tmp_path):
    file = tmp_path / "with-and-without.yaml"
    file.write_text(yaml.safe_dump(STUDY))
    parameters = {"dump": {"paths": ["sample:600"]}, "pretraining": {"steps": 20}}
    run = servers.start("study", study={"file": str(file), "at_once": 1}, **parameters)
    servers.wait(run, "Completed")
    [study] = [path.parent for path in servers.store.glob("study/*/manifest.json")]
    report = json.loads((study / "report.json").read_text())
    assert {(row["arm"], row["task"]) for row in report["results"]} == {
        ("pre-trained", "polarity"),
        ("random", "polarity"),
    }
    [difference] = report["differences"]
    assert difference["low"] <= difference["difference"] <= difference["high"]
    assert Path(study / "report.html").stat().st_size > 1_000
    open_run(page, servers, run)
    page.get_by_text("Task Runs", exact=True).first.click()
    for arm in ("pre-trained", "random"):
        for seed in STUDY["seeds"]:
            cell = page.get_by_text(f"{arm} · polarity · seed {seed}", exact=True).first
            expect(cell).to_be_visible()
    page.wait_for_timeout(3000)
    picture(page, "study")
