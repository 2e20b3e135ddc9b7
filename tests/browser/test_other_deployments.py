"""What `score` and `study` make when they are started as the UI starts them, on what a first run
has left.
"""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from playwright.sync_api import expect

from model.tracking.registry import Registry
from tests.browser.test_prefect_ui import open_run

pytestmark = pytest.mark.timeout(2400)

REVIEWS = 60
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


@pytest.fixture(scope="session")
def dump(tmp_path_factory):
    """Reviews as the 2018 release has them, and two lines that are none."""
    path = tmp_path_factory.mktemp("dump") / "new.json"
    rows = [
        json.dumps(
            {
                "overall": 1.0 + 4 * (i % 2),
                "reviewText": f"It is a {'fine' if i % 2 else 'poor'} thing, number {i} "
                "of all that I have bought.",
                "asin": f"B{i:09}",
                "reviewerID": f"A{i}",
                "unixReviewTime": 1_500_000_000 + i,
            }
        )
        for i in range(REVIEWS)
    ]
    path.write_text(
        "\n".join([*rows[:10], '{"overall": 5.0, "reviewText": "torn', *rows[10:], "no review"])
        + "\n"
    )
    return path


def test_the_champion_scores_a_dump(adapted, dump):
    registry = Registry(adapted.mlflow)
    if not registry.get_by_alias("champion"):
        registry.promote("1", "by hand")
    champion = registry.get_by_alias("champion")
    run = adapted.start("score", dump={"paths": [str(dump)]}, model={"workers": 1})
    adapted.wait(run, "Completed")
    [manifest] = adapted.store.glob("scores/*/manifest.json")
    result = json.loads(manifest.read_text())["result"]
    assert result["read"] == result["scored"] + sum(result["dropped"].values())
    assert result["scored"] == REVIEWS
    scores = [
        row
        for file in manifest.parent.glob("scores-*.parquet")
        for row in pq.read_table(file).to_pylist()
    ]
    assert len({row["review_id"] for row in scores}) == REVIEWS
    assert {row["model_version"] for row in scores} == {champion["version"]}
    labels = json.loads(next(adapted.store.glob("scorer/*/scorer.json")).read_text())["labels"]
    for row in scores:
        assert sum(row["probabilities"]) == pytest.approx(1, abs=1e-4)
        best = max(range(len(labels)), key=row["probabilities"].__getitem__)
        assert (row["label"], row["probability"]) == (labels[best], row["probabilities"][best])
    rejects = [
        json.loads(line)
        for f in manifest.parent.glob("rejects/*.jsonl")
        for line in f.read_text().splitlines()
    ]
    assert [reject["line"] for reject in rejects] == [11, REVIEWS + 2]


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
