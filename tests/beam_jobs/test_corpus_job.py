"""The corpus job on small dumps of its own, read back."""

import gzip
import json
from pathlib import Path

import pytest

from beam_jobs import corpus_job
from beam_jobs.core.errors import UserError
from beam_jobs.corpus import result
from beam_jobs.engine import beam_options
from tests.beam_jobs.dumps import rows_of, run_steps


def review(i: int, text: str | None = None, **fields) -> dict:
    text = f"Item number {i} works. I like it a lot!" if text is None else text
    return {
        "reviewText": text,
        "overall": 1.0 + i % 5,
        "asin": f"B{i:05}",
        "reviewerID": f"U{i}",
        "unixReviewTime": i,
    } | fields


def write_dump(path: Path, records: list[dict | str]) -> Path:
    lines = "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records)
    path.write_bytes(gzip.compress(lines.encode()) if path.suffix == ".gz" else lines.encode())
    return path


def test_every_review_is_kept_or_counted(tmp_path):
    records = [review(i) for i in range(50)] + [
        review(7, asin="other"),
        "{broken",
        review(60, ""),
        {"overall": 5.0},
    ]
    dump = write_dump(tmp_path / "dump.json.gz", records)
    result = corpus_job.run(["--input", str(dump), "--output", str(tmp_path / "corpus")])
    assert result["read"] == 54
    assert result["kept"] == 50
    assert result["dropped"] == {"broken JSON": 1, "duplicate": 1, "empty text": 1, "no text": 1}
    assert len(rows_of(tmp_path / "corpus")) == 50
    reject = json.loads((tmp_path / "corpus" / "rejects" / "0000-00000.jsonl").read_text())
    assert (reject["line"], reject["reason"], reject["file"]) == (52, "broken JSON", str(dump))
    assert {p.name for p in (tmp_path / "corpus").iterdir()} == {
        "corpus-0000-00000.parquet",
        "corpus.json",
        "punkt.json",
        "rejects",
    }


def test_a_step_of_the_graph_writes_the_totals_where_no_command_waits(tmp_path, monkeypatch):
    """As of a template; a step that is repeated does no harm."""
    dump = write_dump(tmp_path / "dump.json.gz", [review(i % 20) for i in range(30)])
    arguments = ["--input", str(dump), "--direct_running_mode=in_memory", "--output"]
    expected = corpus_job.run([*arguments, str(tmp_path / "local")])

    def write_twice(units, plan):
        result.write_totals(units, plan)
        result.write_totals(units, plan)

    monkeypatch.setattr(corpus_job, "write_totals", write_twice)
    monkeypatch.setattr(beam_options, "is_staged_only", lambda options: True)
    assert "staged" in corpus_job.run([*arguments, str(tmp_path / "engine")])
    totals = json.loads((tmp_path / "engine" / "corpus.json").read_text())
    assert totals == {n: v for n, v in expected.items() if n not in ("seconds", "cpu_seconds")}
    assert not list((tmp_path / "engine").glob("_work*"))


def test_rows_hold_sentences_and_labels(tmp_path):
    dump = write_dump(
        tmp_path / "Toys_5.json",
        [review(3, "It broke.  Sad &amp; angry!<br />Never again")],
    )
    run_steps(["--input", str(dump), "--output", str(tmp_path / "corpus")])
    (row,) = rows_of(tmp_path / "corpus")
    assert row["sentences"] == ["It broke.", "Sad & angry!", "Never again"]
    assert (row["stars"], row["source"]) == (4, "Toys_5")


def test_nothing_usable_is_the_users_mistake(tmp_path):
    dump = write_dump(tmp_path / "dump.json", [review(1, ""), review(2, " ")])
    with pytest.raises(UserError, match="no usable review"):
        run_steps(["--input", str(dump), "--output", str(tmp_path / "corpus")])


def test_files_that_are_not_the_jobs_own_stay_and_an_input_in_the_output_is_refused(tmp_path):
    dump = tmp_path / "out" / "corpus-2023.json"
    dump.parent.mkdir()
    write_dump(dump, [review(i) for i in range(20)])
    with pytest.raises(
        UserError, match=r"--output .*/out: .*corpus-2023.json, an input, lies in it"
    ):
        run_steps(["--input", str(dump), "--output", str(tmp_path / "out")])
    assert dump.exists()
    (tmp_path / "out" / "corpus-notes").mkdir()
    (tmp_path / "out" / "rejects").mkdir()
    for name in ("corpus-notes/mine.txt", "rejects/mine.txt", "corpus-0001-00000.parquet"):
        (tmp_path / "out" / name).write_text("mine")
    other = tmp_path / "in" / "d.json"
    other.parent.mkdir()
    write_dump(other, [review(i) for i in range(20)])
    run_steps(["--input", str(other), "--output", str(tmp_path / "out")])
    left = {
        str(path.relative_to(tmp_path / "out"))
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert left >= {"corpus-2023.json", "corpus-notes/mine.txt", "rejects/mine.txt"}
    assert "corpus-0001-00000.parquet" not in left


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--encoding", "undefined"], "--encoding undefined: not an encoding"),
        (
            ["--runner", "NopeRunner"],
            "--runner NopeRunner: not one that Apache Beam knows: .*FnApiRunner",
        ),
    ],
)
def test_an_option_that_names_what_is_not_there(tmp_path, option, message):
    dump = write_dump(tmp_path / "d.json", [review(1)])
    with pytest.raises(UserError, match=message):
        run_steps(["--input", str(dump), "--output", str(tmp_path / "corpus"), *option])
