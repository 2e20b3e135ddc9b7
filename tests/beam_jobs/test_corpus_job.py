"""The corpus job on small dumps of its own, read back."""

import gzip
import json
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from amazon_electra.beam_jobs import corpus_job
from amazon_electra.beam_jobs.config import CorpusConfig
from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.beam_jobs.core.errors import JobFailed
from amazon_electra.beam_jobs.corpus import plan, result
from amazon_electra.beam_jobs.corpus.write import WrittenUnit
from amazon_electra.beam_jobs.reading.work_units import PreparedUnit
from amazon_electra.beam_jobs.text import preparation
from tests.beam_jobs.dumps import (
    digests,
    plan_job,
    review,
    rows_of,
    run_job,
    run_steps,
    write_lines,
)
from tests.refusals import refuses


def test_every_review_is_kept_or_counted(tmp_path):
    records = [review(i) for i in range(50)]
    records += [review(7, asin="other"), "{broken", review(60, ""), {"overall": 5.0}]
    dump, output = write_lines(tmp_path / "dump.json.gz", records), tmp_path / "corpus"
    words = ["--input", str(dump), "--output", str(output)]
    result = call_job(corpus_job.make_corpus, words)
    assert (result["read"], result["kept"], len(rows_of(output))) == (54, 50, 50)
    assert result["dropped"] == {"broken JSON": 1, "duplicate": 1, "no text": 2}
    reject = json.loads((output / "rejects" / "0000000-00000.jsonl").read_text())
    assert (reject["line"], reject["reason"], reject["file"]) == (52, "broken JSON", str(dump))
    names = {"corpus-0000000-00000.parquet", "corpus.json", "punkt.json", "rejects"}
    assert {path.name for path in output.iterdir()} == names


def test_the_counters_of_the_graph_are_its_totals(tmp_path):
    """The work folder stays, for a late worker; a step that is repeated does no harm."""
    records = [*(review(i % 40) for i in range(60)), review(61, ""), "{broken"]
    dump = write_lines(tmp_path / "dump.json.gz", records)
    output, flags = str(tmp_path / "corpus"), ["--direct_running_mode=in_memory"]
    made = plan.plan_corpus(CorpusConfig(), [str(dump)], output, beam_flags=flags)
    pipeline = beam.Pipeline(options=made.engine)
    totals = corpus_job.build_corpus_graph(pipeline, made)
    assert_that(totals | beam.Map(lambda found: found["kept"]), equal_to([40]))
    counters = pipeline.run().metrics().query()
    found = {one.key.metric.name: one.committed for one in counters["counters"]}
    told = json.loads((tmp_path / "corpus" / "corpus.json").read_text())
    dropped = {f"dropped {reason}": n for reason, n in told["dropped"].items()}
    expected = {"read": 62, "kept": 40, "bytes": len(gzip.decompress(dump.read_bytes())), **dropped}
    assert {name: found[name] for name in expected} == expected
    assert {name for name in found if name.startswith("dropped ")} == set(dropped)
    assert told["bytes"] == expected["bytes"]
    times = [(one.key.metric.name, one.committed.count) for one in counters["distributions"]]
    assert times == [("unit_milliseconds", 1)] * 3  # a file is cut, a unit prepared and written
    assert made.folders.work in map(str, (tmp_path / "corpus").iterdir())
    prepared = result.read_finished(made.folders.prepared, PreparedUnit)
    written = result.read_finished(made.folders.written, WrittenUnit)
    assert result.write_totals(written, prepared, made) == told


@pytest.mark.parametrize("blocked", ["cuts/0000000.json", "prepared/0000000-00000.dates"])
def test_a_file_that_cannot_be_cut_or_counted_is_tried_four_times_and_told(tmp_path, blocked):
    """Where a split by time lacks the days of a unit, no other is put on a side by the rest."""
    for name, first in (("a", 0), ("b", 30)):
        days = range(first, first + 30)
        write_lines(tmp_path / f"{name}.json", [review(i, unixReviewTime=86_400 * i) for i in days])
    words = ["--input", str(tmp_path / "*.json"), "--output", str(tmp_path / "corpus")]
    words += ["--split-by", "time", "--direct_running_mode=in_memory"]
    work = Path(plan_job(words).folders.work)
    (work / blocked).mkdir(parents=True)
    with refuses("a.json", "IsADirectory", kind=JobFailed):
        call_job(corpus_job.make_corpus, words)
    assert not list((work / "prepared").glob("*.arrow"))
    (work / blocked).rmdir()
    assert call_job(corpus_job.make_corpus, words)["kept"] == 60


def test_a_unit_that_fails_ends_the_job_after_the_others_and_is_done_by_the_next(
    tmp_path, monkeypatch
):
    files = [
        write_lines(tmp_path / f"{name}.json", [review(i + 50 * k) for i in range(50)])
        for k, name in enumerate("abc")
    ]
    arguments = ["--direct_running_mode=in_memory", "--input", *map(str, files), "--output"]
    expected = call_job(corpus_job.make_corpus, [*arguments, str(tmp_path / "whole")])
    clean = preparation.clean_text

    def fail(text, options):
        return text[10_000] if "Item 77 " in text else clean(text, options)

    with monkeypatch.context() as patched:
        patched.setattr(preparation, "clean_text", fail)
        with refuses("b.json", "IndexError", kind=JobFailed):
            call_job(corpus_job.make_corpus, [*arguments, str(tmp_path / "again")])
    prepared = tmp_path.glob("again/_work-*/prepared/*.json")
    assert sorted(path.stem for path in prepared) == ["0000000-00000", "0000002-00000"]
    result = call_job(corpus_job.make_corpus, [*arguments, str(tmp_path / "again")])
    assert result["kept"] == expected["kept"] == 150
    assert digests(tmp_path / "again") == digests(tmp_path / "whole")


@pytest.mark.parametrize("records", [[], [review(1, ""), review(2, " ")]])
def test_nothing_usable_is_the_users_mistake(tmp_path, records):
    dump = write_lines(tmp_path / "dump.json", records)
    with refuses(f"{len(records)}"):
        run_steps(["--input", str(dump), "--output", str(tmp_path / "corpus")])


def test_files_that_are_not_the_jobs_own_stay_and_an_input_in_the_output_is_refused(tmp_path):
    output, records = tmp_path / "out", [review(i) for i in range(20)]
    for folder in ("corpus-notes", "rejects"):
        (output / folder).mkdir(parents=True)
    dump = write_lines(output / "corpus-2023.json", records)
    with refuses("output", "/out", "corpus-2023.json"):
        run_steps(["--input", str(dump), "--output", str(output)])
    for name in ("corpus-notes/mine.txt", "rejects/mine.txt", "corpus-0000001-00000.parquet"):
        (output / name).write_text("mine")
    other = write_lines(tmp_path / "d.json", records)
    run_steps(["--input", str(other), "--output", str(output)])
    left = {str(path.relative_to(output)) for path in output.rglob("*") if path.is_file()}
    assert left >= {"corpus-2023.json", "corpus-notes/mine.txt", "rejects/mine.txt"}
    assert "corpus-0000001-00000.parquet" not in left


def test_the_ids_of_the_records_are_those_of_the_column_that_is_named(tmp_path):
    lines = ["order,text", *(f"A-{i},It works for the {i}th time" for i in range(5))]
    run_job(tmp_path / "corpus", "--input", write_lines(tmp_path / "d.csv", lines), "--id", "order")
    assert sorted(row["id"] for row in rows_of(tmp_path / "corpus")) == [f"A-{i}" for i in range(5)]
