"""Which files in the watched places are taken for whole dumps."""

import os
import time

import fsspec
import pytest

from amazon_electra.beam_jobs.core import storage
from amazon_electra.flows.configuration.form import fill_parameters
from amazon_electra.flows.dumps.arrivals import find_arrivals, is_named_like_a_dump
from amazon_electra.flows.stages import dump as dump_stage
from amazon_electra.flows.store.store import Store
from tests.flows.dumps.dump_server import Server, serving
from tests.s3_server import BUCKET, serve_s3

LONG_AGO = 1_000_000.0


def dump(path, text="{}", changed=LONG_AGO):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (changed, changed))
    return str(path)


def test_what_is_still_being_written_or_no_dump_is_left_alone(tmp_path):
    now = time.time()
    older = dump(tmp_path / "b.json", changed=LONG_AGO)
    newer = dump(tmp_path / "a.json.gz", changed=LONG_AGO + 1)
    dump(tmp_path / "growing.json", changed=now - 5)
    dump(tmp_path / "empty.json", text="")
    for name in (".hidden.json", "_temporary.json", "_SUCCESS", "upload.json.part", "README.md"):
        dump(tmp_path / name)
    dump(tmp_path / "ahead.json", changed=now + 5000)
    (tmp_path / "folder").mkdir()
    for place in (str(tmp_path), f"{tmp_path}/*"):
        found = find_arrivals([place], 60, now)
        assert [arrival.path for arrival in found.whole] == [older, newer]
        left_alone = {os.path.basename(path) for path in found.left_alone}
        assert left_alone == {"README.md", "upload.json.part", "ahead.json", "growing.json"}
    assert len(find_arrivals([str(tmp_path)], 1, now).whole) == 3


@pytest.mark.parametrize("place", [f"s3://{BUCKET}/inbox", f"s3://{BUCKET}/inbox/*.json"])
def test_the_next_look_sees_new_files_of_a_bucket(place, tmp_path, monkeypatch):
    with serve_s3(tmp_path) as s3:
        for name, value in s3.environment().items():
            monkeypatch.setenv(name, value)
        for name in ("a.json", "b.json"):
            other = fsspec.filesystem("s3", skip_instance_cache=True)  # of another process
            other.pipe_file(f"{BUCKET}/inbox/{name}", b"{}")
            seen = [arrival.path for arrival in find_arrivals([place], 0, time.time() + 60).whole]
            assert seen[-1] == f"s3://{BUCKET}/inbox/{name}"


def test_only_what_is_named_like_a_dump_is_one():
    dumps = (
        "a.json a.JSONL a.ndjson.gz a.csv a.tsv.gz train.ft.txt.bz2 a.parquet a.json.zst a.zip "
        "a.gz b.2018.json.gz"
    )
    assert [name for name in dumps.split() if not is_named_like_a_dump(f"/x.y/{name}")] == []
    others = "README.md c.json.sha256 SUCCESS notes.md.gz model.pt a.json.md5 a"
    assert [name for name in others.split() if is_named_like_a_dump(f"/x.y/{name}")] == []


def test_a_name_that_is_not_utf8_is_told_and_keeps_no_other_waiting(tmp_path):
    other = dump(tmp_path / "a.json")
    (tmp_path / os.fsdecode(b"caf\xe9.json")).write_text("{}")
    found = find_arrivals([str(tmp_path)], 60, time.time())
    assert [arrival.path for arrival in found.whole] == [other]
    assert found.left_alone == {f"{tmp_path}/caf\\xe9.json": "its name is not UTF-8, rename it"}


def test_a_link_is_what_it_leads_to(tmp_path):
    dump(tmp_path / "elsewhere" / "a.json", text="{12345}")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link.json").symlink_to("../elsewhere/a.json")
    (tmp_path / "in" / "broken.json").symlink_to("nowhere")
    (tmp_path / "in" / "folder.json").symlink_to(tmp_path)
    [found] = find_arrivals([str(tmp_path / "in")], 60, time.time()).whole
    assert (found.path, found.size, found.changed) == (
        str(tmp_path / "in" / "link.json"),
        7,
        LONG_AGO,
    )


def test_brackets_in_the_name_of_a_folder_or_a_file_are_no_pattern(tmp_path):
    path = dump(tmp_path / "reviews [2024]" / "reviews[1].json")
    dump(tmp_path / "reviews 2" / "reviews1.json")
    for place in (os.path.dirname(path), path):
        assert [arrival.path for arrival in find_arrivals([place], 60, time.time()).whole] == [path]
    form = fill_parameters([], dump={"paths": [path]}, store=str(tmp_path / "store"))
    reviews = dump_stage.build_dump_stage(form.dump, Store(form.store))
    assert reviews.result["paths"] == [path]
    assert storage.expand_patterns(reviews.result["paths"]) == [path], "the jobs read the same file"


def test_a_place_that_is_not_there_is_told(tmp_path):
    (tmp_path / "empty").mkdir()
    there = [str(tmp_path / "empty"), f"{tmp_path}/empty/*.json", f"{tmp_path}/**/*.json"]
    missing = [
        str(tmp_path / "nowhere"),
        f"{tmp_path}/no*/where/*.json",
        f"{tmp_path}/typo/*",
        "memory://no-such/*",
    ]
    assert find_arrivals([*there, *missing], 60, time.time()).missing == [missing[0], *missing[2:]]


@pytest.fixture
def web_server():
    with serving(Server()) as server:
        yield server
