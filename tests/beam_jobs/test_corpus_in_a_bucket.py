"""The corpus job from a folder into a bucket of a real S3 server, in many small parts."""

import gzip
import re

import pytest

from amazon_electra.beam_jobs import corpus_job
from amazon_electra.beam_jobs.config import ReadingConfig
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.beam_jobs.deduplication import buckets
from amazon_electra.beam_jobs.reading.detection import HEAD_BYTES
from amazon_electra.beam_jobs.reading.work_units import list_dump_files
from amazon_electra.beam_jobs.sample import sample_dump
from tests.beam_jobs.dumps import look_at, run_steps
from tests.s3_server import BUCKET, connect, serve_s3

OPTIONS = ["--direct_running_mode", "in_memory", "--direct_num_workers", "1"]


@pytest.fixture
def s3(tmp_path, monkeypatch):
    with serve_s3(tmp_path / "s3") as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield server


def test_a_corpus_in_a_bucket_has_the_bytes_of_one_in_a_folder(s3, tmp_path, monkeypatch):
    """Buckets of duplicates and of runs are read as stretches of the units' files."""
    for seed, name in enumerate("ab"):
        sample_dump.write_sample(tmp_path / f"{name}.json.gz", 500, seed=seed)
    with gzip.open(tmp_path / "a.json.gz", "rt") as file:
        lines = file.readlines()
    with gzip.open(tmp_path / "c.json.gz", "wt") as near:
        for number, line in enumerate(lines):
            end = " So it is." if number % 2 else ""
            near.write(re.sub(r'("reviewText": "[^"\\]*)"', rf'\1{end}"', line))
    given = ["--input", str(tmp_path / "*.json.gz")]
    whole = run_steps([*given, "--output", str(tmp_path / "whole")])
    assert whole["dropped"]["duplicate"] > 10
    assert whole["dropped"]["withheld"] > 10
    monkeypatch.setattr(buckets, "SHARED_REVIEWS", 50)
    words = [*given, "--output", f"s3://{BUCKET}/corpus/", *OPTIONS]
    assert call_job(corpus_job.make_corpus, words)["units"] == whole["units"] == 3
    there, folder, place = connect(s3), tmp_path / "whole", f"{BUCKET}/corpus/"
    names = {path.removeprefix(place) for path in there.find(place)}
    assert names == {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    for name in names - {"corpus.json"}:
        assert there.cat_file(place + name) == (folder / name).read_bytes()


def test_no_more_of_a_large_file_is_fetched_than_is_looked_at(s3):
    line = b'{"text": "%s", "stars": 5}\n' % (b"It works well. " * 60)
    storage.write_bytes(f"s3://{BUCKET}/d.json", line * 10_000)
    before = s3.read_counter("bucket_traffic_sent_bytes_total")
    file = look_at(f"s3://{BUCKET}/d.json")
    sent = s3.read_counter("bucket_traffic_sent_bytes_total") - before
    assert HEAD_BYTES <= sent < 2 * HEAD_BYTES < file.size / 8


def test_small_files_are_looked_at_by_one_request_each(s3):
    """Beside those for the list, which tells their versions."""
    names = [f"s3://{BUCKET}/small/{n}.json{end}" for n in range(10) for end in ("", ".gz")]
    for number, name in enumerate(names):
        line = b'{"text": "It works, %d times.", "stars": 5}\n' % number
        storage.write_bytes(name, gzip.compress(line) if name.endswith("gz") else line)
    before = s3.read_counter("request_total")
    files = list_dump_files(ReadingConfig(), [f"s3://{BUCKET}/small/*"])
    assert [file.compression for file in files] == ["", "gz"] * 10
    assert s3.read_counter("request_total") - before <= len(names) + 8
    for file in files:
        storage.check_unchanged(file.identity)
