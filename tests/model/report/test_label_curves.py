"""Which tasks of a study are points of one line against the number of labels."""

import pytest

from model.report import label_curves
from model.report.costs import build_cost_blocks
from model.report.document import Table
from tests.flows.studies.loaded import read_shipped


def of(name, n, **settings):
    return {"name": name, "task": "polarity", "data": "corpus", "n_train": n, **settings}


def test_tasks_that_differ_in_more_than_labels_are_not_one_line():
    tasks = [
        of("200", 200, epochs=8),
        of("800", 800, epochs=3),
        of("800, [CLS]", 800, epochs=3, pooling="cls"),
    ]
    assert label_curves.group_label_curves(tasks) == {"polarity": {200: "200", 800: "800"}}
    both = [*tasks, of("200, [CLS]", 200, epochs=8, pooling="cls")]
    assert label_curves.group_label_curves(both)["polarity, pooling cls"] == {
        200: "200, [CLS]",
        800: "800, [CLS]",
    }
    assert label_curves.group_label_curves([*tasks, of("films", 200, data="films")]) == {
        "polarity, data corpus": {200: "200", 800: "800"}
    }


def test_the_same_number_of_labels_for_more_epochs_is_another_line():
    tasks = [of(f"{n}, {epochs}", n, epochs=epochs) for n in (800, 200) for epochs in (1, 3)]
    assert label_curves.group_label_curves(tasks) == {
        f"polarity, epochs {epochs}": {200: f"200, {epochs}", 800: f"800, {epochs}"}
        for epochs in (1, 3)
    }


@pytest.mark.parametrize(
    ("name", "points"), [("where_it_pays", [50, 200, 800]), ("pretraining_settings", [200, 800])]
)
def test_the_shipped_studies_have_one_line_of_mean_pooling(name, points):
    study = read_shipped(name, dict.fromkeys(("corpus", "shards", "steps"), "100"))
    described = [
        {"name": t.name, "task": t.task, "data": t.data, **study.settings, **t.settings}
        for t in study.tasks
    ]
    [named] = label_curves.group_label_curves(described).values()
    assert named == {n: f"polarity, {n} labels" for n in points}


class Found:
    """Results in which every arm has every task but the last, where only the first was run."""

    tasks = ("200", "800", "800, [CLS]")
    arms = ("a", "b")

    def get_main_metric(self, task):
        return "accuracy"

    def list_cells(self, arm, task):
        return [1] if arm == "a" or task != "800" else []

    def pool_metrics(self, arm, task):
        value = {"200": 0.7, "800": 0.9, "800, [CLS]": 0.5}[task]
        return (
            {"accuracy": {"value": value, "low": value, "high": value}}
            if self.list_cells(arm, task)
            else {}
        )


def test_the_table_of_labels_has_the_arms_that_were_run_with_all_of_them():
    tasks = [of("200", 200), of("800", 800), of("800, [CLS]", 800, pooling="cls")]
    [table] = [
        block for block in build_cost_blocks({"tasks": tasks}, Found()) if isinstance(block, Table)
    ]
    assert table.header == ("arm", "200 labels", "800 labels")
    assert table.rows == [("a", "70.0%", "90.0%")]


COST = {
    "device": "cpu", "threads": 1, "parameters": 12_345, "bytes": 5e6, "peak_bytes": 1e9,
    "reviews_per_second": 321.0,
    "batch_1": {"p50_ms": 1.5, "p99_ms": 2.5}, "batch_32": {"p50_ms": 0.5, "p99_ms": 0.7},
}  # fmt: skip


@pytest.mark.parametrize(
    ("device", "memory"), [("cpu", "memory (MB)"), ("cuda", "GPU memory (MB)")]
)
def test_what_an_arm_costs_stands_beside_how_good_it_is(device, memory):
    arms = [{"name": name, "cost": COST | {"device": device}} for name in Found.arms]
    [table] = [
        block for block in build_cost_blocks({"arms": arms}, Found()) if isinstance(block, Table)
    ]
    assert table.header[:5] == (
        "arm",
        "200: accuracy",
        "800: accuracy",
        "800, [CLS]: accuracy",
        "parameters",
    )
    assert table.header[-1] == memory
    assert [row[:5] for row in table.rows] == [
        ("a", "70.0% (70.0 – 70.0)", "90.0% (90.0 – 90.0)", "50.0% (50.0 – 50.0)", "12,345"),
        ("b", "70.0% (70.0 – 70.0)", "–", "50.0% (50.0 – 50.0)", "12,345"),
    ]
