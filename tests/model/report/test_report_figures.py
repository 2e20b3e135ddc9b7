"""The report draws the curves of training and quality against labels and cost, and says where lines
cross.
"""

import json
from dataclasses import replace

import pytest

from model.evaluation import significance
from model.report import crossings, report, results, sections


def test_the_curves_of_pre_training_are_figures_by_what_they_measure(tmp_path):
    measures = {"discriminator_auc": 0.6, "discriminator_effective_rank": 40.0, "loss": 9.0}
    measures |= {"discriminator_mean_cosine": 0.5, "fixed_auc": 0.5, "generator_loss": 6.0}
    validated = {f"validation_{name}": value for name, value in measures.items()}
    lines = [
        {"step": step, "loss": 9.0 / step, "generator_loss": 6.0} | (validated if step > 1 else {})
        for step in (1, 2, 3)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    study = {"pretraining": [{"name": "ours", "metrics": "metrics.jsonl"}]}
    *figures, table = sections.build_pretraining_curves(study, tmp_path)[1:]
    assert [figure.caption.split(" ")[:2] for figure in figures] == [
        ["Losses", "of"],
        ["Losses", "on"],
        ["AUC", "of"],
        ["Effective", "rank"],
        ["Mean", "cosine"],
    ]
    assert [(row[0], row[2]) for row in table.rows] == [
        ("ours: generator loss", "6.000"),
        ("ours: loss", "3.000"),
        ("ours: validation generator loss", "6.000"),
        ("ours: validation discriminator auc", "0.600"),
        ("ours: validation fixed auc", "0.500"),
        ("ours: validation discriminator effective rank", "40.000"),
        ("ours: validation discriminator mean cosine", "0.500"),
    ]
    assert sections.build_pretraining_curves({}, tmp_path) == []


def test_learning_curves_are_of_the_learning_rate_that_was_kept(study, tmp_path):
    found = results.load_results(json.loads((study / "study.json").read_text())["cells"], study)
    rows = [
        {"step": step, "attempt": attempt, "peak_learning_rate": rate, "dev_accuracy": rate * step}
        for attempt, rate, steps in ((0, 0.1, (10, 20)), (1, 0.2, (40, 60)))
        for step in steps
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    cell = replace(
        found.cells[0], about={**found.cells[0].about, "model": str(tmp_path), "learning_rate": 0.2}
    )
    assert sections._read_learning_curve(cell, "accuracy", 1) == [
        (20, pytest.approx(8.0)),
        (40, pytest.approx(12.0)),
    ]


def test_quality_against_labels_and_cost_is_drawn_where_the_study_tells_it(study):
    content = json.loads((study / "study.json").read_text())
    cost = {
        "device": "cpu", "threads": 1, "parameters": 123_456, "bytes": 5e6, "peak_bytes": 1e9,
        "reviews_per_second": 321.0,
        "batch_1": {"p50_ms": 1.5, "p99_ms": 2.5}, "batch_32": {"p50_ms": 0.5, "p99_ms": 0.7},
    }  # fmt: skip
    content["arms"] = [
        {
            "name": "in-domain",
            "flops": 3e13,
            "matrix_flops": 1.25e13,
            "tokens": 4_000_000,
            "seconds": 185,
            "cost": cost,
            "latency_ms": 1.5,
            "forms": {"int8": cost | {"form": "int8", "changed_labels": 3, "reviews": 256}},
        },
        {"name": "random", "latency_ms": 1.1},
    ]
    content["tasks"] = [
        {"name": "polarity", "task": "polarity", "n_train": 100},
        {"name": "stars", "task": "polarity", "n_train": 1000},
    ]
    (study / "costs.json").write_text(json.dumps(content))
    report.run(["--study", str(study / "costs.json"), "--output", str(study / "costs")])
    page = (study / "costs" / "report.html").read_text()
    for words in (
        "against pre-training operations in matrix products",
        "1.250e+13",
        "against latency",
        "against the number of labels",
        "123,456",
        "1.50 / 2.50",
        "in-domain, int8",
        "3 of 256 labels change",
    ):
        assert words in page
    text = (study / "costs" / "report.md").read_text()
    assert "100 labels" in text
    assert "## Where the lines cross" in text
    assert "evidence of a gain at 100 labels" in text


def comparison(effect, p=0.5):
    return significance.Comparison(
        "accuracy", effect, effect - 0.01, effect + 0.01, p, p, 100, 3, p
    )


@pytest.mark.parametrize(
    ("effects", "words"),
    [
        ((0.04, 0.02, -0.02), "the lines cross near 548 labels"),
        (
            (0.04, 0.02, 0.02),
            "the lines do not cross: the gain stays above zero from 100 to 1,000 labels",
        ),
        ((-0.04, -0.02, 0.0), "the gain stays at or below zero"),
    ],
)
def test_where_the_lines_cross_is_told(effects, words):
    points = [
        (x, results.Difference("a", "b", "t", comparison(e)))
        for x, e in zip((100, 300, 1000), effects, strict=True)
    ]
    told = crossings.describe_crossing("a − b", points, "labels")
    assert words in told
    assert "at none of them is there evidence of a difference" in told


def test_an_arm_without_pretraining_is_what_the_others_gain_over():
    study = {"arms": [{"name": "a", "tokens": 10}, {"name": "b", "tokens": 100}, {"name": "c"}]}
    for arm in study["arms"][:2]:
        arm["recipe"] = "mlm"
    found = [
        results.Difference(x, "c", "t", comparison(e, 0.01)) for x, e in (("b", 0.1), ("a", -0.1))
    ]
    [(name, points)] = crossings.group_by_tokens(study, found).items()
    assert [x for x, _ in points] == [10, 100]
    told = crossings.describe_crossing(name, points, "tokens")
    assert "evidence of a gain at 100 tokens and evidence of a loss at 10 tokens" in told
    assert "cross near 32 tokens" in told
    study["arms"][0]["recipe"] = "electra"
    assert crossings.group_by_tokens(study, found) == {}
