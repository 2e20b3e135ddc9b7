"""The report of a study: computed from predictions, complete in one file, loadable model folder."""

import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest

from beam_jobs.job.errors import UserError
from beam_jobs.job.files import write_json
from model.report import report, results
from tests.model.report.evaluations import render, said, write_cells


def test_a_difference_is_told_and_so_is_that_there_is_none(written):
    summary = json.loads((written / "report.json").read_text())
    large, none = summary["differences"]
    assert large["words"] == "in-domain is better than random"
    assert 0.05 < large["low"] < 0.15 < large["high"] < 0.25
    assert large["p_holm"] < 0.05 < none["p_holm"]
    assert "no evidence of a difference between in-domain and random" in summary["answer"]
    for name in ("report.md", "report.html"):
        assert "no evidence of a difference" in (written / name).read_text()


def test_settings_are_told_with_what_arms_have_of_their_own(study, tmp_path):
    content = json.loads((study / "study.json").read_text())
    content["searched"] = {"in-domain": {"batch": 16, "learning_rates": [0.002], "max_length": 128}}
    for cell in content["cells"]:
        place = tmp_path / cell["evaluation"]
        shutil.copytree(study / cell["evaluation"], place)
        own = (
            {"batch": 16, "learning_rates": [0.002]}
            if cell["arm"] == "in-domain"
            else {"learning_rates": [1e-3, 4e-3]}
        )
        length = 32 if cell["task"] == "stars" else 128
        settings = {
            "batch": 16,
            "patience": None,
            "balanced_test": False,
            "max_length": length,
            **own,
        }
        (place / "model").mkdir()
        write_json(place / "model" / "result.json", {"settings": settings})
        about = json.loads((place / "metrics.json").read_text())
        write_json(place / "metrics.json", about | {"model": str(place / "model")})
    write_json(tmp_path / "study.json", content | {"model": None, "pretraining": []})
    report.run(["--study", str(tmp_path / "study.json"), "--output", str(tmp_path / "report")])
    text = (tmp_path / "report" / "report.md").read_text()
    section = text.split("## Settings of fine-tuning")[1].split("## Each run")[0]
    rows = [
        [part.strip() for part in line.split("|")[1:-1]]
        for line in section.splitlines()
        if line.startswith("|")
    ]
    assert ["arm", "task", "batch", "max_length", "learning_rates"] in rows
    assert ["in-domain", "polarity", "16*", "128*", "0.002*"] in rows
    assert ["in-domain", "stars", "16*", "32", "0.002*"] in rows
    assert ["random", "stars", "16", "32", "0.001, 0.004"] in rows
    assert "found by the search of this arm" in section
    assert ["patience", "–"] in rows
    assert ["balanced_test", "False"] in rows
    assert not any(row[0] == "max_length" for row in rows)
    content |= {
        "searched": {},
        "cells": [cell for cell in content["cells"] if cell["arm"] == "random"],
    }
    content["cells"] += [cell | {"arm": "untrained"} for cell in content["cells"]]
    write_json(tmp_path / "study.json", content | {"model": None, "pretraining": []})
    report.run(["--study", str(tmp_path / "study.json"), "--output", str(tmp_path / "report")])
    text = (tmp_path / "report" / "report.md").read_text()
    assert "| all | polarity | 128 |\n| all | stars | 32 |\n" in text


def test_values_are_means_over_seeds(written, study):
    values = [
        json.loads((study / f"random-polarity-{seed}" / "metrics.json").read_text())["metrics"][
            "accuracy"
        ]["value"]
        for seed in range(3)
    ]
    results = json.loads((written / "report.json").read_text())["results"]
    found = next(r for r in results if (r["arm"], r["task"]) == ("random", "polarity"))
    assert found["metrics"]["accuracy"]["value"] == pytest.approx(np.mean(values))


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
    assert page.tags.count("svg") == page.tags.count("figure") >= 4
    assert "Adaptation &lt;of&gt; a model" in text
    assert "&lt;b&gt;not&lt;/b&gt; good" in text
    assert 'name="viewport"' in text
    assert 'class="warning" role="alert"' in text


def test_a_fine_tuning_is_read_where_the_study_says_and_not_where_it_was_evaluated(study):
    [cell, *_] = json.loads((study / "study.json").read_text())["cells"]
    [found] = results.load_results([cell | {"finetuned": "copies/one"}], study).cells
    assert found.about["model"] == str(study / "copies" / "one")


@pytest.mark.parametrize(
    "part",
    [
        "## Question", "## Answer", "2,000", "15 texts were withheld", "f00", "e9c0de", "ce11",
        "amazon-electra run --dump",
        "Confusion matrix", "By stars", "By words", "calibration error", "Worst mistakes",
        "p (Holm)", "p (randomization)",
        "**Warning:** what the encoder of random was trained on is unknown",
        "**Warning:** nothing shows that the test texts of stars were withheld from what in-domain "
        "was pre-trained on",
        "No text of three words or more that is tested on in polarity reaches the pre-training of "
        "in-domain as a whole text, not even as a repetition",
        "(own dev 5, own test 7, withheld (exact) 3)",
        "Columns of the dump: text ← review_text; not used: grade, strs (stars?).",
        "| kept | 30,522 | 1.234 | 0.001% |\n| new | 4,000 | 1.500 | 1.000% |",
    ],
)  # fmt: skip
def test_the_markdown_has_every_part(written, part):
    assert part in (written / "report.md").read_text()


def test_the_page_has_every_mistake_and_the_markdown_the_worst(written):
    page, text = (written / "report.html").read_text(), (written / "report.md").read_text()
    for arm_and_task in ("in-domain, polarity, seed 0", "random, stars, seed 0"):
        assert f"<summary>{arm_and_task}</summary>" in page
    assert (page.count("good | at all 29"), text.count("at all 29"), text.count("at all 9")) == (
        4,
        0,
        4,
    )
    for part in (
        "Confusion matrix",
        "By stars",
        "calibration error",
        "15 texts were withheld",
        "e9c0de",
        "ce11",
    ):
        assert part in page


def test_writing_twice_gives_the_same_page(written, study):
    report.run(["--study", str(study / "study.json"), "--output", str(study / "again")])
    assert (study / "again" / "report.html").read_text() == (written / "report.html").read_text()


def test_a_study_without_cells_is_the_users_mistake(tmp_path):
    (tmp_path / "empty.json").write_text('{"cells": []}')
    with pytest.raises(UserError, match="no cells"):
        report.run(["--study", str(tmp_path / "empty.json"), "--output", str(tmp_path)])


def test_the_lineage_has_every_pre_training_of_an_arm(tmp_path):
    seeds = [{"seed": seed, "fingerprint": f"f{seed}"} for seed in (3, 4)]
    arms = [
        {"name": "several", "fingerprint": "f3", "pretrainings": seeds},
        {"name": "one", "fingerprint": "f9"},
        {"name": "random"},
    ]
    cells = write_cells(tmp_path, {arm["name"]: lambda p, s: said(0.7, s) for arm in arms})
    _, text = render(tmp_path, cells, arms=arms)
    lineage = text.split("## Lineage")[1].split("Each fine-tuning's own")[0]
    rows = [line.strip("| ").split(" | ") for line in lineage.splitlines() if "encoder" in line]
    assert rows == [
        ["encoder of several, pre-training seed 3", "f3"],
        ["encoder of several, pre-training seed 4", "f4"],
        ["encoder of one", "f9"],
    ]
