"""The report of a study: computed from predictions, complete in one file, loadable model folder."""

import hashlib
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from beam_jobs.job.errors import UserError
from beam_jobs.job.files import write_json
from model.evaluation import predictions, significance, spans
from model.evaluation.evaluate import summarize_predictions
from model.evaluation.predictions import Predictions
from model.finetuning.tasks import find_task
from model.report import crossings, report, results, sections
from tests.model.corpora import write_electra

COUNTS = {
    "read": 2000,
    "kept": 1990,
    "splits": {"pretrain": 9, "dev": 5, "test": 7},
    "dropped": {"withheld (exact)": 3},
    "columns": {"used": {"text": ["review_text"]}, "unused": {"grade": "", "strs": "stars"}},
}
FIT = {
    "words": 900,
    "choices": [
        {"vocabulary": "kept", "size": 30_522, "unknown_rate": 1e-5, "tokens_per_word": 1.2345},
        {"vocabulary": "new", "size": 4_000, "unknown_rate": 0.01, "tokens_per_word": 1.5},
    ],
}


def said(accuracy: float, seed: int, n: int = 400) -> Predictions:
    """Predictions for the same n examples, right with this probability."""
    generator = np.random.default_rng([seed, int(accuracy * 1000)])
    labels = np.arange(n) % 2
    guesses = np.where(generator.random(n) < accuracy, labels, 1 - labels)
    probabilities = np.where(np.arange(2) == guesses[:, None], 0.8, 0.2).astype(np.float32)
    return Predictions(
        ids=[hashlib.sha256(str(i).encode()).hexdigest() for i in range(n)],
        labels=labels.tolist(),
        predictions=guesses.tolist(),
        loss=-np.log(probabilities[np.arange(n), labels]).astype(float),
        probabilities=probabilities,
        n_classes=2,
        slices={"stars": [str(1 + i % 5) for i in range(n)], "words": list(range(n))},
    )


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Two tasks: on one the arms differ by 15 points, on the other not at all."""
    folder = tmp_path_factory.mktemp("study")
    cells = []
    for task, accuracies in (
        ("polarity", {"in-domain": 0.85, "random": 0.70}),
        ("stars", {"in-domain": 0.7, "random": 0.701}),
    ):
        for arm, accuracy in accuracies.items():
            for seed in range(3):
                place = folder / f"{arm}-{task}-{seed}"
                place.mkdir()
                result = said(accuracy, seed)
                predictions.write_predictions(result, place / "predictions.parquet")
                write_json(
                    place / "metrics.json",
                    summarize_predictions(result, find_task("polarity"), "test")
                    | {"learning_rate": 1e-3},
                )
                mistake = {
                    "label": "negative",
                    "prediction": "positive",
                    "loss": 3.1,
                    "text": "<b>not</b> good | at all",
                }
                lines = [
                    json.dumps(mistake | {"text": f"{mistake['text']} {i}"}) for i in range(30)
                ]
                (place / "mistakes.jsonl").write_text("\n".join(lines) + "\n")
                cells.append(
                    {
                        "arm": arm,
                        "task": task,
                        "seed": seed,
                        "evaluation": place.name,
                        "fingerprint": "ce11",
                    }
                )
    write_electra(folder / "discriminator")
    curve = [
        json.dumps({"step": i, "generator_loss": 9 - i / 20, "discriminator_loss": 0.7})
        for i in range(50)
    ]
    (folder / "metrics.jsonl").write_text("\n".join(curve))
    content = {
        "title": "Adaptation <of> a model",
        "command": ["amazon-electra", "run", "--dump", "x.json.gz"],
        "dump": {"files": 1, "sha256": "abc"},
        "stages": [
            {"stage": "corpus", "fingerprint": "f00", "counts": COUNTS, "seconds": 1},
            {"stage": "vocabulary choices", "fingerprint": "f17", "counts": FIT, "seconds": 1},
        ],
        "pretraining": [{"name": "in-domain", "metrics": "metrics.jsonl"}],
        "model": "discriminator",
        "arms": [
            {"name": "random", "data_known": False},
            {"name": "in-domain", "fingerprint": "e9c0de", "held_out": ["polarity"]},
        ],
        "cells": cells,
    }
    (folder / "study.json").write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="module")
def written(study):
    report.run(["--study", str(study / "study.json"), "--output", str(study / "report")])
    return study / "report"


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


def test_one_sentence_answers_however_many_comparisons_there_are():
    def difference(task, p):
        comparison = significance.Comparison("accuracy", 0.1, 0.05, 0.15, p, p, 100, 3)
        return results.Difference("a", "b", task, comparison)

    shown = [difference("polarity", 0.001)]
    many = [difference(f"task {i}", 0.5) for i in range(report.MANY)]
    assert report.compose_answer(None, [*shown, *many]) == (
        "A is better than b on polarity (accuracy +10.0 points, 95% interval +5.0 to +15.0); "
        f"there is no evidence of a difference in the other {report.MANY} comparisons."
    )
    worse = replace(shown[0], comparison=shown[0].comparison.swap_arms())
    told = report.compose_answer(None, [worse])
    assert (
        told
        == "B is better than a on polarity (accuracy +10.0 points, 95% interval +5.0 to +15.0)."
    )
    none = report.compose_answer(None, [*many, difference("stars", 0.5)])
    assert none == f"There is no evidence of a difference in any of {report.MANY + 1} comparisons."
    few = report.compose_answer(None, [*shown, *many[:5]])
    assert few.endswith("between a and b on task 0, task 1, task 2, task 3, task 4.")


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


def test_writing_twice_gives_the_same_page(written, study):
    report.run(["--study", str(study / "study.json"), "--output", str(study / "again")])
    assert (study / "again" / "report.html").read_text() == (written / "report.html").read_text()


def test_each_way_to_compare_is_rendered(study, tmp_path):
    """The first arm with the others by default; the named pairs; one arm alone; one seed."""
    content = json.loads((study / "study.json").read_text())
    cells = [cell | {"evaluation": str(study / cell["evaluation"])} for cell in content["cells"]]

    def rendered(**changes):
        told = {name: value for name, value in content.items() if name in ("title", "arms")}
        (tmp_path / "study.json").write_text(json.dumps(told | {"cells": cells} | changes))
        summary = report.write_report(tmp_path / "study.json", tmp_path)
        return summary, (tmp_path / "report.md").read_text()

    summary, text = rendered()
    assert [(d["a"], d["b"]) for d in summary["differences"]] == [("in-domain", "random")] * 2
    assert "in-domain − random" in text
    assert "McNemar's exact test, by sampling" in text
    assert "Holm's step-down method" in text

    summary, text = rendered(comparisons=[["random", "in-domain"]])
    assert {(d["a"], d["b"], d["words"]) for d in summary["differences"]} == {
        ("random", "in-domain", "in-domain is better than random"),
        ("random", "in-domain", "no evidence of a difference between random and in-domain"),
    }
    assert "random − in-domain" in text

    _, text = rendered(left_out=[{"name": "general text", "why": "none was given"}])
    assert "The arm general text was left out: none was given." in text

    summary, text = rendered(cells=[cell for cell in cells if cell["arm"] == "random"])
    assert summary["differences"] == []
    assert summary["answer"].endswith("there is no second arm to compare it with.")
    assert "## Differences" not in text

    summary, text = rendered(cells=[cell for cell in cells if cell["seed"] == 0])
    assert all(d["p"] == d["p_randomization"] for d in summary["differences"])
    assert "Some arms have one seed" in text


def test_a_pair_without_cells_and_a_seed_counted_twice_are_the_users_mistakes(study):
    cells = json.loads((study / "study.json").read_text())["cells"]
    with pytest.raises(
        UserError,
        match="'in-domain' and 'general' have no task and seed in common; the arms are in",
    ):
        results.load_results(cells, study).compare_pairs([("in-domain", "general")])
    with pytest.raises(
        UserError, match="cells: random on stars has seed 2 2 times; each counts once"
    ):
        results.load_results([*cells, cells[-1]], study)


def test_a_study_without_cells_is_the_users_mistake(tmp_path):
    (tmp_path / "empty.json").write_text('{"cells": []}')
    with pytest.raises(UserError, match="no cells"):
        report.run(["--study", str(tmp_path / "empty.json"), "--output", str(tmp_path)])


def write_cells(folder, arms, pretraining_seeds=(None,), seeds=range(3), task="polarity"):
    """Write evaluations of a task; `arms` has the predictions of an arm by its seeds."""
    cells = []
    for arm, predict in arms.items():
        for pretraining_seed in pretraining_seeds:
            for seed in seeds:
                place = folder / f"{arm}-{pretraining_seed}-{seed}"
                place.mkdir(parents=True)
                result = predict(pretraining_seed, seed)
                predictions.write_predictions(result, place / "predictions.parquet")
                about = summarize_predictions(result, find_task(task), "test")
                write_json(place / "metrics.json", about)
                cell = {"arm": arm, "task": task, "seed": seed, "evaluation": place.name}
                if pretraining_seed is not None:
                    cell["pretraining_seed"] = pretraining_seed
                cells.append(cell)
    return cells


def render(folder, cells, **content):
    (folder / "study.json").write_text(json.dumps({"cells": cells, **content}))
    summary = report.write_report(folder / "study.json", folder / "report")
    return summary, (folder / "report" / "report.md").read_text()


def test_one_pretraining_is_named_and_several_are_counted(tmp_path):
    """The random arm has no checkpoint: each of its seeds meets every pre-training of the other."""
    one = write_cells(tmp_path, {"trained": lambda p, s: said(0.85, s)})
    random = write_cells(tmp_path, {"random": lambda p, s: said(0.7, s)})
    summary, text = render(tmp_path, one + random)
    [difference] = summary["differences"]
    assert difference["one_checkpoint"] is True
    assert difference["pretraining_seeds"] == 1
    assert "points of this one checkpoint, 95% interval" in summary["answer"]
    assert "comes from one pre-training" in text

    several = write_cells(tmp_path, {"trained": lambda p, s: said(0.85, 10 * p + s)}, (1, 2, 3))
    summary, text = render(tmp_path, several + random)
    [difference] = summary["differences"]
    assert difference["one_checkpoint"] is False
    assert (difference["pretraining_seeds"], difference["seeds"]) == (3, 9)
    assert "checkpoint" not in summary["answer"] + text
    assert "Pre-training seeds are a random effect as well" in text
    assert "| trained | 3 × 3 |" in text
    assert "| random | 3 |" in text

    with pytest.raises(UserError, match="seed 0 of pre-training seed 1 2 times"):
        results.load_results([*several, several[0]], tmp_path)


def test_arms_without_pretraining_have_no_checkpoint(tmp_path):
    cells = write_cells(
        tmp_path, {"focal": lambda p, s: said(0.85, s), "plain": lambda p, s: said(0.7, s)}
    )
    untrained = [{"name": "focal", "data_known": True}, {"name": "plain"}]
    summary, text = render(tmp_path, cells, arms=untrained)
    assert "checkpoint" not in summary["answer"] + text


def test_arms_that_answer_the_same_are_told_so(tmp_path):
    """Also where the examples are in another order."""

    def shuffle(pretraining_seed, seed):
        result = said(0.8, seed)
        return result.take_rows(np.random.default_rng(seed).permutation(len(result)))

    cells = write_cells(tmp_path, {"a": lambda p, s: said(0.8, s), "b": shuffle})
    summary, text = render(tmp_path, cells)
    assert summary["differences"][0]["words"] == "both arms give the same answers"
    assert summary["answer"].startswith("A and b give the same answers on polarity")
    assert "both arms give the same answers |" in text


def test_an_arm_of_one_answer_is_named_in_red(tmp_path):
    def always(value, seeds):
        def predict(pretraining_seed, seed):
            result = said(0.8, seed)
            return replace(result, predictions=[value] * len(result)) if seed in seeds else result

        return predict

    arms = {"stuck": always(1, (0, 1, 2)), "often": always(0, (2,)), "fine": always(0, ())}
    summary, text = render(tmp_path, write_cells(tmp_path, arms))
    told = {row["arm"]: row["only_answer"] for row in summary["results"]}
    assert told == {
        "stuck": "polarity: stuck answers one class only: positive",
        "often": "polarity: often answers one class only with 1 of 3 seeds: negative",
        "fine": "",
    }
    assert f"> **Warning:** {told['stuck']}" in text
    page = (tmp_path / "report" / "report.html").read_text()
    assert f'<p class="warning" role="alert">{told["often"]}</p>' in page


def test_an_arm_that_answers_no_question_is_named_in_red(tmp_path):
    def answer(texts):
        golds = [["blue"], [], ["red"], []]
        scores = spans.score_answers(texts, golds)
        scores |= {f"answered_{name}": values for name, values in scores.items()}
        scores |= {"answered": np.ones(len(texts)), "no_answer": np.zeros(len(texts))}
        ids = [str(i) for i in range(len(texts))]
        return Predictions(ids, golds, texts, np.zeros(len(texts)), scores=scores)

    def answers(*seeds):
        return lambda _, seed: answer(["", "", "", ""] if seed in seeds else ["blue", "", "", ""])

    arms = {"stuck": answers(0, 1, 2), "often": answers(2), "fine": answers()}
    summary, text = render(tmp_path, write_cells(tmp_path, arms, task="squad2"))
    assert [row["only_answer"] for row in summary["results"]] == [
        "squad2: stuck answers nothing",
        "squad2: often answers nothing with 1 of 3 seeds",
        "",
    ]
    assert "> **Warning:** squad2: stuck answers nothing" in text


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


def test_a_difference_loses_its_better_to_the_number_of_comparisons(tmp_path):
    """Three comparisons with p of 0.01, 0.04 and 0.03 alone: corrected, one of them is left."""

    def right(gained, lost):
        """Two hundred answers of which so many more and fewer are right than the base's."""
        is_right = np.arange(200) < 100
        is_right[100 : 100 + gained], is_right[:lost] = True, False
        labels = np.arange(200) % 2
        return lambda p, s: Predictions(
            [str(i) for i in range(200)],
            labels.tolist(),
            np.where(is_right, labels, 1 - labels).tolist(),
            np.zeros(200),
            np.full((200, 2), 0.5, dtype=np.float32),
            2,
        )

    arms = {"base": right(0, 0), "x": right(16, 4), "y": right(13, 4), "z": right(14, 4)}
    cells = write_cells(tmp_path, arms, seeds=[0])
    pairs = [["x", "base"], ["y", "base"], ["z", "base"]]
    summary, text = render(tmp_path, cells, comparisons=pairs)
    x, y, z = summary["differences"]
    assert x["p"] < 0.05 / 3
    assert 0.025 < z["p"] < y["p"] < 0.05
    assert [d["evidence"] for d in (x, y, z)] == [True, False, False]
    assert x["words"] == "x is better than base"
    assert [d["words"].split(" between")[0] for d in (y, z)] == ["no evidence of a difference"] * 2
    assert "X is better than base on polarity" in summary["answer"]
    assert "y is better" not in text
