"""What a run prints at its end: every task's own metrics."""

import json

from flows.results import in_words, print_results


def interval(value):
    return {"value": value, "low": value - 0.01, "high": value + 0.01}


def row(task, **metrics):
    return {"task": task, "arm": "a", "seeds": [0, 1], "metrics": {name: interval(v) for name, v in metrics.items()}}


def test_every_task_is_printed_by_its_own_metrics(tmp_path, capsys):
    rows = [
        row("polarity", accuracy=0.9, macro_f1=0.8, ece=0.1, loss=0.3),
        row("squad2", exact_match=0.5, answer_f1=0.6),
        row("sts-b", pearson=0.7, mse=1.25),
    ]
    (tmp_path / "report.json").write_text(json.dumps({"title": "T", "results": rows, "differences": []}))
    print_results(tmp_path)
    printed = capsys.readouterr().out
    for words in (
        "macro-F1", "90.0% (89.0 – 91.0)", "0.300 (0.290 – 0.310)", "exact match", "60.0% (59.0 – 61.0)",
        "Pearson correlation", "1.250 (1.240 – 1.260)",
    ):  # fmt: skip
        assert words in printed
    assert "calibration" not in printed


def test_a_difference_has_the_unit_of_its_metric():
    d = {"task": "t", "a": "x", "b": "y", "metric": "accuracy", "p": 0.023, "words": "x is better than y"}
    d |= {"difference": 0.18, "low": 0.057, "high": 0.304}
    assert in_words(d) == "t: x − y = +18.0 points of accuracy (+5.7 to +30.4, p = 0.023): x is better than y"
    told = in_words(d | {"metric": "mse"})
    assert told == "t: x − y = +0.180 of mean squared error (+0.057 to +0.304, p = 0.023): x is better than y"
