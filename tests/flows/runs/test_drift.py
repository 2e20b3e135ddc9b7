"""A new file that differs emits one event; a file that was scored before, or is alike, none."""

import logging

from amazon_electra.flows.runs import drift


def describe(file, *findings):
    numbers = {"expected": 0.6, "low": 0.4, "high": 0.8, "tested": 0.9, "unlike": 0.5}
    about = {"findings": list(findings), "accuracy": None, "says": "; ".join(findings)}
    stars = numbers | {"findings": [], "accuracy": None, "says": ""}
    return {"file": file, "drift": {"polarity": numbers | about, "stars": stars}}


def test_each_new_file_that_differs_emits_an_event(monkeypatch):
    events, tables = [], []
    monkeypatch.setattr(drift, "emit_event", lambda *told, **named: events.append((told, named)))
    monkeypatch.setattr(drift.artifacts, "publish", lambda _, rows, **named: tables.append(rows))
    monkeypatch.setattr(drift, "find_run_logger", logging.getLogger)
    files = [describe("may.csv", "half Spanish"), describe("june.csv", "half Spanish")]
    drift.publish_drift(
        [*files, describe("july.csv"), {"file": "few.csv"}], {"june.csv", "july.csv"}
    )
    [((name, resource), named)] = events
    assert name == "scores.drifted"
    assert resource == {"prefect.resource.id": "reviews.scores.june.csv"}
    assert named["payload"]["file"] == "june.csv"
    assert {task: one["expected"] for task, one in named["payload"]["tasks"].items()} == {
        "polarity": 0.6
    }
    shown = [(row["file"], row["task"]) for row in tables[0]]
    files = ("may.csv", "june.csv", "july.csv")
    assert shown == [(file, task) for file in files for task in ("polarity", "stars")]
    drift.publish_drift([{"file": "few.csv"}], {"few.csv"})
    assert len(tables) == len(events) == 1
