"""The report says of each comparison what it is evidence of, by how many checkpoints and seeds, and
warns of arms that answer nothing or one class only.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.model.evaluation import significance, spans
from amazon_electra.model.evaluation.predictions import Predictions
from amazon_electra.model.report import report, results
from amazon_electra.model.report.inputs import ReportInput
from tests.model.report.evaluations import read_page, render, said, write_cells


def test_one_sentence_answers_however_many_comparisons_there_are():
    def difference(task, p):
        comparison = significance.Comparison("accuracy", 0.1, 0.05, 0.15, p, 100, 3)
        return results.Difference("a", "b", task, comparison)

    shown = difference("polarity", 0.001)
    many = [difference(f"task {i}", 0.5) for i in range(report.MANY)]
    better = " is better than b on polarity (accuracy +10.0 points, 95% interval +5.0 to +15.0)"
    rest = f"; there is no evidence of a difference in the other {report.MANY} comparisons."
    assert report.compose_answer(None, [shown, *many]) == f"A{better}{rest}"
    worse = replace(shown, comparison=shown.comparison.swap_arms())
    assert report.compose_answer(None, [worse]).startswith("B is better than a on polarity")
    none = report.compose_answer(None, [*many, difference("stars", 0.5)])
    assert none == f"There is no evidence of a difference in any of {report.MANY + 1} comparisons."
    few = report.compose_answer(None, [shown, *many[:5]])
    assert few.endswith("between a and b on task 0, task 1, task 2, task 3, task 4.")


def test_named_pairs_are_compared_and_one_arm_is_not(study, tmp_path):
    content = json.loads((study / "study.json").read_text())
    cells = [cell | {"evaluation": str(study / cell["evaluation"])} for cell in content["cells"]]

    def rendered(**changes):
        kept = {name: value for name, value in content.items() if name in ("title", "arms")}
        (tmp_path / "study.json").write_text(json.dumps(kept | {"cells": cells} | changes))
        summary = report.write_report(tmp_path / "study.json", tmp_path)
        return summary, read_page(tmp_path / "study.json")

    summary, text = rendered(comparisons=[["random", "in-domain"]])
    assert {(d["a"], d["b"], d["words"]) for d in summary.differences} == {
        ("random", "in-domain", "in-domain is better than random"),
        ("random", "in-domain", "no evidence of a difference between random and in-domain"),
    }
    assert "random − in-domain" in text
    summary, text = rendered(cells=[cell for cell in cells if cell["arm"] == "random"])
    assert summary.differences == []
    assert summary.answer.endswith("there is no second model to compare it with.")
    assert "## Differences" not in text


def test_a_pair_without_cells_and_a_seed_counted_twice_are_the_users_mistakes(study):
    cells = json.loads((study / "study.json").read_text())["cells"]
    given = ReportInput.model_validate({"cells": cells})
    with pytest.raises(UserError) as error:
        results.load_results(given, given.cells, study).compare_pairs([("in-domain", "general")])
    assert "'in-domain' and 'general'" in str(error.value)
    with pytest.raises(UserError) as error:
        results.load_results(given, [*given.cells, given.cells[-1]], study)
    assert "random on stars has seed 2 " in str(error.value)


def test_one_pretraining_is_named_and_several_are_counted(tmp_path):
    """The random arm has no checkpoint: each of its seeds meets every pre-training of the other."""
    one = write_cells(tmp_path, {"trained": lambda p, s: said(0.85, s)})
    random = write_cells(tmp_path, {"random": lambda p, s: said(0.7, s)})
    summary, text = render(tmp_path, one + random)
    [difference] = summary.differences
    assert difference["one_checkpoint"] is True
    assert difference["pretraining_seeds"] == 1
    assert "points of this one checkpoint, 95% interval" in summary.answer
    assert "comes from one pre-training" in text

    several = write_cells(tmp_path, {"trained": lambda p, s: said(0.85, 10 * p + s)}, (1, 2, 3))
    summary, text = render(tmp_path, several + random)
    [difference] = summary.differences
    assert difference["one_checkpoint"] is False
    assert (difference["pretraining_seeds"], difference["seeds"]) == (3, 9)
    assert "checkpoint" not in summary.answer + text
    assert "Pre-training seeds are a random effect as well" in text
    assert "| polarity | trained | 3 × 3 | – | 400 |" in text
    assert "| polarity | random | 3 | – | 400 |" in text

    twice = ReportInput.model_validate({"cells": [*several, several[0]]})
    with pytest.raises(UserError) as error:
        results.load_results(twice, twice.cells, tmp_path)
    assert "seed 0 of pre-training seed 1 " in str(error.value)


def test_arms_that_answer_the_same_are_named(tmp_path):
    """Also where the examples are in another order."""

    def shuffle(pretraining_seed, seed):
        result = said(0.8, seed)
        return result.take_rows(np.random.default_rng(seed).permutation(len(result)))

    cells = write_cells(tmp_path, {"a": lambda p, s: said(0.8, s), "b": shuffle})
    summary, _ = render(tmp_path, cells)
    assert summary.differences[0]["words"] == "both models give the same answers"
    assert summary.answer.startswith("A and b give the same answers on polarity")


def test_an_arm_of_one_answer_is_named_in_red(tmp_path):
    def always(value, seeds):
        def predict(pretraining_seed, seed):
            result = said(0.8, seed)
            return replace(result, predictions=[value] * len(result)) if seed in seeds else result

        return predict

    arms = {"stuck": always(1, (0, 1, 2)), "often": always(0, (2,)), "fine": always(0, ())}
    summary, text = render(tmp_path, write_cells(tmp_path, arms))
    found = {row["arm"]: row["only_answer"] for row in summary.results}
    assert found == {
        "stuck": "polarity: stuck answers one class only: positive",
        "often": "polarity: often answers one class only with 1 of 3 seeds: negative",
        "fine": "",
    }
    assert f"> **Warning:** {found['stuck']}" in text
    page = (tmp_path / "report" / "report.html").read_text()
    assert f"<strong>Warning:</strong> {found['often']}</p>" in page


def test_an_arm_that_answers_no_question_is_named_in_red(tmp_path):
    def predict(pretraining_seed, seed):
        golds, texts = [["blue"], [], ["red"], []], ["", "" if seed == 2 else "blue", "", ""]
        scores = spans.score_answers(texts, golds)
        scores |= {f"answered_{name}": values for name, values in scores.items()}
        scores |= {"answered": np.ones(4), "no_answer": np.zeros(4)}
        return Predictions(list("abcd"), golds, texts, np.zeros(4), scores=scores)

    cells = write_cells(tmp_path, {"often": predict}, task="squad2")
    summary, text = render(tmp_path, cells)
    named = "squad2: often answers nothing with 1 of 3 seeds"
    assert [row["only_answer"] for row in summary.results] == [named]
    assert f"> **Warning:** {named}" in text
