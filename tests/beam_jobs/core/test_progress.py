"""Progress lines: first and last always, and seldom in between."""

import json

import pytest

from amazon_electra.beam_jobs.core.progress import Progress


def reports(stderr: str) -> list[dict]:
    lines = stderr.splitlines()
    assert all(line.startswith("PROGRESS ") for line in lines)
    return [json.loads(line.removeprefix("PROGRESS ")) for line in lines]


def test_json_lines_are_first_and_last_and_rare(monkeypatch, capsys):
    monkeypatch.setenv("AMAZON_ELECTRA_PROGRESS", "json")
    with Progress(1000, "steps", "pre-training", done=100) as p:
        for step in range(101, 1001):
            p.update(step, loss=step / 1000)
    seen = reports(capsys.readouterr().err)
    assert len(seen) == 2
    assert (seen[0]["done"], seen[0]["total"], seen[0]["unit"]) == (100, 1000, "steps")
    assert (seen[-1]["done"], seen[-1]["loss"], seen[-1]["seconds_left"]) == (1000, 1.0, 0)


def test_the_last_line_comes_even_when_the_job_fails(monkeypatch, capsys):
    monkeypatch.delenv("AMAZON_ELECTRA_PROGRESS", raising=False)

    def fail_after_two_units():
        with Progress(2, "units", "shards") as p:
            p.update(2, reviews=1234)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_after_two_units()
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first == "shards: 0 of 2 units"
    assert last.startswith("shards: 2 of 2 units")
    assert last.endswith("reviews 1234")
