"""The report of a study: computed from predictions, complete in one file."""

import json
import re
from html.parser import HTMLParser

import pytest

from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.model.evaluation.significance import adjust_p_values
from amazon_electra.model.report import report, results
from amazon_electra.model.report.inputs import ReportInput
from tests.model.report.evaluations import render, write_cells, write_result
from tests.refusals import refuses

COUNTS = {
    "read": 2000,
    "kept": 1990,
    "dropped": {"withheld": 3},
    "columns": {"used": {"text": ["review_text"]}, "unused": ["grade", "strs"]},
    "split_by": {"by": "text", "without": 7},
}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study of two tasks: on one the arms differ by 15 points, on the other not at all. Its
    folder, the result of its report, and the report as Markdown.
    """
    folder = tmp_path_factory.mktemp("study")
    cells = write_cells(folder, {"in-domain": 0.85, "random": 0.70})
    cells += write_cells(folder, {"in-domain": 0.7, "random": 0.701}, task="stars")
    cost = {"tokens": 4_000_000, "matrix_flops": 1.25e13, "seconds": 185}
    content = {
        "title": "Adaptation <of> a model",
        "command": "amazon-electra run --dump x.json.gz",
        "dump": {"files": 1, "sha256": "abc"},
        "synthetic": True,
        "stages": [{"stage": "corpus", "counts": COUNTS}],
        "arms": [
            {"name": "random", "data_known": False},
            {"name": "in-domain", "held_out": ["polarity"], **cost},
        ],
    }
    return folder, *render(folder, cells, **content)


def test_what_an_adaptation_by_contrast_cost_has_no_flops(tmp_path):
    cells = write_cells(tmp_path, {"TF-IDF": 0.7, "adapted": 0.8})
    arms = [{"name": "TF-IDF"}, {"name": "adapted", "tokens": 492_838, "seconds": 228.3}]
    _, report = render(tmp_path, cells, arms=arms)
    assert "| adapted | 492,838 | – | 228 |" in report


def test_the_report_names_a_difference_and_its_absence(study):
    folder, result, _ = study
    summary = json.loads((folder / "report" / "report.json").read_text())
    assert summary == result.content
    large, none = summary["differences"]
    assert large["words"] == "in-domain is better than random"
    assert 0.05 < large["low"] < 0.15 < large["high"] < 0.25
    assert large["p_holm"] < 0.05 < none["p_holm"]
    adjusted = adjust_p_values([large["p"], none["p"]])
    assert [large["p_holm"], none["p_holm"]] == pytest.approx(adjusted)
    assert "no evidence of a difference between in-domain and random" in summary["answer"]
    for name in ("report.md", "report.html"):
        assert "no evidence of a difference" in (folder / "report" / name).read_text()


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.links, self.tags = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href", "xlink:href")]


def test_the_page_stands_alone(study):
    text = (study[0] / "report" / "report.html").read_text()
    page = Page()
    page.feed(text)
    assert [link for link in page.links if not link.startswith("#")] == []
    assert not re.search(r"@import|<script|<link", text)
    assert page.tags.count("svg") == page.tags.count("figure") == 1
    assert "Adaptation &lt;of&gt; a model" in text
    assert 'name="viewport"' in text
    assert 'class="warning" role="alert"' in text
    assert text.count("<details><summary><h2>") == study[2].count("\n## ")


def test_the_report_has_what_it_was_given(study):
    for part in (
        "amazon-electra run --dump x.json.gz", "synthetic", "| in-domain | 4,000,000 | 1.250e+13 |",
        "2,000, kept: 1,990", "withheld 3", "text ← review_text", "grade, strs", "7 reviews",
    ):  # fmt: skip
        assert part in study[2]


def test_the_summary_is_one_page(study):
    text = (study[0] / "report" / "report.md").read_text()
    assert "| in-domain |" in text
    assert len(text.splitlines()) < 40
    assert "<details" not in text
    assert "|\n\nreport.html has the rest" in text, "no row of the table"


ACCURACIES = {"joined": 0.92, "TF-IDF": 0.8, "fine-tuned": 0.91}
SECONDS = {"joined": 10, "TF-IDF": 2, "fine-tuned": 280}


def test_the_report_begins_for_a_manager(tmp_path):
    cells = write_cells(tmp_path, ACCURACIES)
    for cell in cells:
        cell["cpu_seconds"] = SECONDS[cell["arm"]]
        write_result(cell, dev={"accuracy": ACCURACIES[cell["arm"]], "loss": 0.5})
    (tmp_path / "model").mkdir()
    write_json(tmp_path / "model" / "cost.json", {"megabytes": 90.8, "milliseconds": 5.25})
    write_json(tmp_path / "model" / "results.json", {"task": "polarity"})
    result, text = render(tmp_path, cells, models=["model"], store="my store")
    assert result.best == {"polarity": "joined"}
    [joined] = [row["metrics"] for row in result.results if row["arm"] == "joined"]
    accuracy = joined["accuracy"]["value"]
    first, _, rest = text.partition("##")
    assert f"**polarity**: joined is right for {accuracy:.1%} (" in first
    assert "of 400 test examples" in first
    assert "over TF-IDF, where answering the most frequent class is right for 50.0%." in first
    assert "**Next:** label new reviews with it." in first
    assert "amazon-electra score --dump new.csv --store 'my store'" in first
    assert "10 CPU seconds (TF-IDF 2, fine-tuned 280)" in rest
    assert "90.8 MB and 5.2 ms" in rest


def test_the_first_line_says_that_the_best_arm_is_no_model_to_keep(tmp_path):
    cells = write_cells(tmp_path, {"bert": 0.8, "random": 0.8})
    for cell in cells:
        write_result(cell, dev={"accuracy": 0.9 if cell["arm"] == "random" else 0.8, "loss": 0.5})
    arms = [{"name": "bert", "data_known": False}, {"name": "random"}]
    _, text = render(tmp_path, cells, arms=arms)
    assert "random was not pre-trained, so it is no model to keep" in text
    assert "best of the others is bert" in text


def test_the_table_names_the_labels_that_each_arm_read(tmp_path):
    """Of train and of dev, in one number where it was cross-validated; those of a student that
    learns from its teacher's outputs alone are its teacher's.
    """
    made = {
        "teacher": {"n_train": 1600, "n_dev": 400},
        "student": {"n_train": 9000, "n_dev": 400, "settings": {"soft_weight": 1.0}},
        "folded": {"n_train": 900, "n_dev": 900, "n_labels": 900},
    }
    cells = write_cells(tmp_path, dict.fromkeys((*made, "other"), 0.8), seeds=[0])
    made["student"]["teacher"] = cells[0]["evaluation"]
    for cell, content in zip(cells, made.values(), strict=False):
        write_result(cell, **content)
    _, text = render(tmp_path, cells)
    table = [re.split(r" *\| *", line)[1:-1] for line in text.splitlines() if line.startswith("|")]
    place = table[0].index("labels")
    assert [row[place] for row in table[2:6]] == ["1,600 + 400", "1,600 + 400", "900", "–"]


def test_the_label_curve_has_a_column_for_each_number_of_labels(tmp_path):
    cells, curve = write_cells(tmp_path, {"bert": 0.8, "TF-IDF": 0.8}), []
    for n in (50, 200):
        curve += [one | {"labels": n} for one in write_cells(tmp_path / str(n), {"TF-IDF": 0.6})]
    for cell in cells:
        write_result(cell, n_train=800)
    _, text = render(tmp_path, cells, curve=curve)
    assert "polarity, TF-IDF: 200 more labels: +" in text
    [row] = [line for line in text.splitlines() if "polarity | TF-IDF | accuracy | 5" in line]
    assert "50 labels | 200 labels | all" in text
    assert [cell.split()[0] for cell in row.split("|")[4:7]] == ["58.3%", "58.3%", "80.8%"]


def test_named_pairs_are_compared_and_one_arm_is_not(tmp_path):
    cells = write_cells(tmp_path, {"in-domain": 0.85, "random": 0.7})
    result, text = render(tmp_path, cells, comparisons=[["random", "in-domain"]])
    assert [(d["a"], d["b"], d["words"]) for d in result.differences] == [
        ("random", "in-domain", "in-domain is better than random"),
    ]
    assert "random − in-domain" in text
    result, text = render(tmp_path, [cell for cell in cells if cell["arm"] == "random"])
    assert result.differences == []
    assert result.answer.endswith("there is no second model to compare it with.")
    assert "## Differences" not in text


def test_one_pretraining_is_named_and_several_are_counted(tmp_path):
    """The random arm has no checkpoint: each of its seeds meets every pre-training of the other."""
    one, random = (write_cells(tmp_path, {n: a}) for n, a in (("trained", 0.85), ("random", 0.7)))
    result, text = render(tmp_path, one + random)
    [difference] = result.differences
    assert (difference["one_checkpoint"], difference["pretraining_seeds"]) == (True, 1)
    assert "points of this one checkpoint, 95% interval" in result.answer
    assert "comes from one pre-training" in text

    several = write_cells(tmp_path, {"trained": 0.85}, (1, 2, 3))
    result, text = render(tmp_path, several + random)
    [difference] = result.differences
    assert difference["one_checkpoint"] is False
    assert (difference["pretraining_seeds"], difference["seeds"]) == (3, 9)
    assert "checkpoint" not in result.answer + text
    assert "Pre-training seeds are a random effect as well" in text
    assert "| polarity | trained | 3 × 3 | – | 400 |" in text
    assert "| polarity | random | 3 | – | 400 |" in text


def test_mistakes_of_a_study_are_named(tmp_path):
    cells = write_cells(tmp_path, {"trained": 0.8}, (1, 2)) + write_cells(tmp_path, {"random": 0.7})
    given = ReportInput.model_validate({"cells": cells})
    with refuses("trained", "general"):
        results.load_results(given, given.cells, tmp_path).compare_pairs([("trained", "general")])
    for place, named in (
        (0, "seed 0 of pre-training seed 1 "),
        (-1, "random on polarity has seed"),
    ):
        with refuses(named):
            results.load_results(given, [*given.cells, given.cells[place]], tmp_path)
    for content, field in (
        ('{"cells": []}', "cells"),
        ('{"cells": [{"arm": "a"}]}', "cells.0.task"),
        ('{"colls": []}', "cells"),
        ("{", "content"),
    ):
        (tmp_path / "study.json").write_text(content)
        with refuses(f"study.json: {field}: "):
            report.write_report(tmp_path / "study.json", tmp_path)
