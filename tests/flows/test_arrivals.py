"""Which files in the watched places are taken for dumps."""

import os

import fsspec
import pytest

from amazon_electra.flows.watch import find_dumps, is_named_like_a_dump
from tests.s3_server import BUCKET, serve_s3


def dump(path, text="{}"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (1_000_000.0, 1_000_000.0))
    return str(path)


def test_what_is_unfinished_by_its_name_empty_or_no_dump_is_left_alone(tmp_path):
    first, second = dump(tmp_path / "a.json.gz"), dump(tmp_path / "b.json")
    dump(tmp_path / "empty.json", text="")
    dump(tmp_path / os.fsdecode(b"caf\xe9.json"))
    for name in (".hidden.json", "_temporary.json", "_SUCCESS", "upload.json.part", "README.md"):
        dump(tmp_path / name)
    (tmp_path / "folder").mkdir()
    for place in (str(tmp_path), f"{tmp_path}/*"):
        found, notes = find_dumps([place])
        assert [path for path, *_ in found] == [first, second]
        assert len(notes) == 2
        for name in ("upload.json.part", r"caf\xe9.json"):
            assert any(name in note for note in notes)


@pytest.mark.parametrize("place", [f"s3://{BUCKET}/inbox", f"s3://{BUCKET}/inbox/*.json"])
def test_the_next_look_sees_new_files_of_a_bucket(place, tmp_path, monkeypatch):
    with serve_s3(tmp_path) as s3:
        for name, value in s3.environment().items():
            monkeypatch.setenv(name, value)
        for name in ("a.json", "b.json"):
            other = fsspec.filesystem("s3", skip_instance_cache=True)  # of another process
            other.pipe_file(f"{BUCKET}/inbox/{name}", b"{}")
            assert find_dumps([place])[0][-1][0] == f"s3://{BUCKET}/inbox/{name}"


def test_only_what_is_named_like_a_dump_is_one():
    dumps = (
        "a.json a.JSONL a.ndjson.gz a.csv a.tsv.gz train.ft.txt.bz2 a.parquet a.json.zst a.zip "
        "a.gz b.2018.json.gz"
    )
    assert [name for name in dumps.split() if not is_named_like_a_dump(f"/x.y/{name}")] == []
    others = "README.md c.json.sha256 SUCCESS notes.md.gz model.pt a.json.md5 a"
    assert [name for name in others.split() if is_named_like_a_dump(f"/x.y/{name}")] == []


def test_a_link_is_what_it_leads_to(tmp_path):
    dump(tmp_path / "elsewhere" / "a.json", text="{12345}")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link.json").symlink_to("../elsewhere/a.json")
    (tmp_path / "in" / "broken.json").symlink_to("nowhere")
    [(path, size, version)], _ = find_dumps([str(tmp_path / "in")])
    assert (path, size) == (str(tmp_path / "in" / "link.json"), 7)
    assert version.startswith("1000000")
