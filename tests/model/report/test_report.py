"""The report of a study: computed from predictions, complete in one file."""

import json
import re
from html.parser import HTMLParser

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.model.evaluation.significance import adjust_p_values
from amazon_electra.model.report import formats, report, results
from amazon_electra.model.report.inputs import ReportInput
from tests.model.report.evaluations import read_page, render, said, write_cells


def test_the_report_names_a_difference_and_its_absence(written):
    summary = json.loads((written / "report.json").read_text())
    large, none = summary["differences"]
    assert large["words"] == "in-domain is better than random"
    assert 0.05 < large["low"] < 0.15 < large["high"] < 0.25
    assert large["p_holm"] < 0.05 < none["p_holm"]
    adjusted = adjust_p_values([large["p"], none["p"]])
    assert [large["p_holm"], none["p_holm"]] == pytest.approx(adjusted)
    assert "no evidence of a difference between in-domain and random" in summary["answer"]
    for name in ("report.md", "report.html"):
        assert "no evidence of a difference" in (written / name).read_text()


def test_the_table_names_the_labels_that_each_arm_read(tmp_path):
    """Of train and of dev, in one number where it was cross-validated; those of a student that
    learns from its teacher's outputs alone are its teacher's.
    """
    names = ("teacher", "student", "folded", "other")
    predict = {name: lambda _, seed: said(0.8, seed) for name in names}
    cells = write_cells(tmp_path, predict, seeds=[0])
    settings = {"soft_weight": 1.0}
    made = {
        "teacher": {"n_train": 1600, "n_dev": 400, "teacher": None, "settings": settings},
        "student": {"n_train": 9000, "n_dev": 400, "teacher": "made", "settings": settings},
        "folded": {"n_train": 900, "n_dev": 900, "n_labels": 900, "teacher": None},
    }
    for name, result in made.items():
        result["teacher"] = result["teacher"] and str(tmp_path / "of teacher")
        (tmp_path / f"of {name}").mkdir()
        (tmp_path / f"of {name}" / "result.json").write_text(json.dumps({"dev": {}, **result}))
        next(cell for cell in cells if cell["arm"] == name)["finetuned"] = f"of {name}"
    _, text = render(tmp_path, cells)
    table = [re.split(r" *\| *", line)[1:-1] for line in text.splitlines() if line.startswith("|")]
    place = table[0].index("labels")
    assert {row[1]: row[place] for row in table[2:6]} == {
        "teacher": "1,600 + 400",
        "student": "1,600 + 400",
        "folded": "900",
        "other": "–",
    }


@pytest.mark.parametrize(
    ("metric", "shown"), [("accuracy", "58.4% (50.9 – 65.2)"), ("mae", "0.584 (0.509 – 0.652)")]
)
def test_what_is_no_share_is_no_percentage(metric, shown):
    values = {"value": 0.584, "low": 0.509, "high": 0.652}
    assert formats.format_with_interval(metric, values) == shown


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.links, self.open, self.tags = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href", "xlink:href")]


def test_the_page_stands_alone(written):
    text = (written / "report.html").read_text()
    page = Page()
    page.feed(text)
    assert [link for link in page.links if not link.startswith("#")] == []
    assert not re.search(r"@import|<script|<link", text)
    assert page.tags.count("svg") == page.tags.count("figure") == 1
    assert "Adaptation &lt;of&gt; a model" in text
    assert "&lt;b&gt;not&lt;/b&gt; good" in text
    assert 'name="viewport"' in text
    assert 'class="warning" role="alert"' in text


def test_a_fine_tuning_is_read_where_the_study_says_and_not_where_it_was_evaluated(study):
    [cell, *_] = json.loads((study / "study.json").read_text())["cells"]
    given = ReportInput.model_validate({"cells": [cell | {"finetuned": "copies/one"}]})
    [found] = results.load_results(given, given.cells, study).cells
    assert found.finetuned == study / "copies" / "one"


@pytest.mark.parametrize(
    "part",
    [
        "## Warnings", "## Results", "15 texts were withheld", "amazon-electra run --dump",
        "calibration error", "Worst mistakes", "p (Holm)",
        "**Warning:** Nothing is known of the texts that the encoder of random was trained on",
        "| in-domain | 4,000,000 | 1.250e+13 | 185 | 123,456 | 5.0 | 2.50 / 3.50 | 0.50 / 0.70 |",
        "| random | – | – | – | 123,456 | 5.0 | 1.50 / 2.50 | 0.50 / 0.70 | 321 | 1,000 |",
        "Reviews read: 2,000, kept: 1,990; dropped, by reason: withheld 3.",
        "Columns of the dump: text ← review_text; not used: grade, strs.",
    ],
)  # fmt: skip
def test_the_page_has_every_part(study, written, part):
    assert part in read_page(study / "study.json")


def test_the_summary_is_one_page(written):
    text = (written / "report.md").read_text()
    assert "| in-domain |" in text
    assert len(text.splitlines()) < 40
    assert "<details" not in text
    page = (written / "report.html").read_text()
    assert "<summary>in-domain, polarity, seed 0</summary>" in page
    assert page.count("good | at all 29") == 4


@pytest.mark.slow
def test_writing_twice_gives_the_same_page(written, study):
    report.write_report(study / "study.json", study / "again")
    assert (study / "again" / "report.html").read_text() == (written / "report.html").read_text()


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ('{"cells": []}', "cells"),
        ('{"cells": [{"arm": "a"}]}', "cells.0.task"),
        ('{"colls": []}', "cells"),
        ("{", "content"),
    ],
)
def test_a_study_that_cannot_be_read_is_the_users_mistake(content, field, tmp_path):
    (tmp_path / "empty.json").write_text(content)
    with pytest.raises(UserError) as error:
        report.write_report(tmp_path / "empty.json", tmp_path)
    assert f"empty.json: {field}: " in str(error.value)


def test_the_first_line_says_that_the_best_arm_is_no_model_to_keep(tmp_path):
    cells = write_cells(tmp_path, {n: lambda _, seed: said(0.8, seed) for n in ("bert", "random")})
    for cell in cells:
        cell["finetuned"] = cell["evaluation"]
        dev = {"accuracy": 0.9 if cell["arm"] == "random" else 0.8, "loss": 0.5}
        (tmp_path / cell["evaluation"] / "result.json").write_text(json.dumps({"dev": dev}))
    arms = [{"name": "bert", "data_known": False}, {"name": "random"}]
    _, text = render(tmp_path, cells, arms=arms)
    assert "random was not pre-trained, so it is no model to keep" in text
    assert "best of the others is bert" in text


def test_the_report_of_the_sample_says_so_first(tmp_path):
    cells = write_cells(tmp_path, {"bert": lambda _, seed: said(0.8, seed)})
    for synthetic in (False, True):
        _, text = render(tmp_path, cells, synthetic=synthetic)
        assert ("The dump is the synthetic sample" in text.partition("##")[0]) == synthetic


def test_the_label_curve_has_a_column_for_each_number_of_labels(tmp_path):
    arms = {n: lambda _, seed: said(0.8, seed) for n in ("bert", "TF-IDF")}
    cells, curve = write_cells(tmp_path, arms), []
    for n in (50, 200):
        of = write_cells(tmp_path / str(n), {"TF-IDF": lambda _, seed: said(0.6, seed)})
        curve += [c | {"labels": n, "evaluation": f"{n}/{c['evaluation']}"} for c in of]
    for cell in cells:
        cell["finetuned"] = cell["evaluation"]
        (tmp_path / cell["evaluation"] / "result.json").write_text('{"n_train": 800}')
    _, text = render(tmp_path, cells, curve=curve)
    assert "polarity, TF-IDF: 200 more labels: +" in text
    [row] = [line for line in text.splitlines() if "polarity | TF-IDF | accuracy | 5" in line]
    assert "50 labels | 200 labels | all" in text
    assert [cell.split()[0] for cell in row.split("|")[4:7]] == ["58.3%", "58.3%", "80.8%"]
    assert "With fewer labels" in text


def test_arms_are_compared_over_all_tasks_and_numbers_of_labels(tmp_path):
    def write(folder, better):
        arms = {"bert": lambda _, seed: said(better, seed), "TF-IDF": lambda _, s: said(0.6, 9 + s)}
        return write_cells(folder, arms)

    cells, curve = write(tmp_path, 0.75), []
    for n in (50, 200):
        of = write(tmp_path / str(n), 0.7)
        curve += [c | {"labels": n, "evaluation": f"{n}/{c['evaluation']}"} for c in of]
    _, text = render(tmp_path, cells, curve=curve)
    [row] = [line for line in text.splitlines() if "polarity: 3 settings" in line]
    assert "bert − TF-IDF" in row
    assert "bert is better than TF-IDF" in row


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ({}, ["by a hash of its text"]),
        ({"by": "time", "without": 7}, ["the latest reviews are test", "7 reviews have no date"]),
    ],
)
def test_the_report_says_what_the_split_is_by(given, parts, tmp_path):
    split = {"by": "text", "without": 0}
    cells = write_cells(tmp_path, {"bert": lambda _, seed: said(0.8, seed)}, seeds=[0])
    stage = {"stage": "corpus", "counts": {"split_by": split | given}}
    _, text = render(tmp_path, cells, stages=[stage])
    assert [part for part in parts if part not in text] == []
