"""What names, folders and globs stand for, here and in object stores alike."""

import socket
import threading

import fsspec
import pytest

from amazon_electra.beam_jobs.core import storage
from tests.refusals import refuses
from tests.s3_server import BUCKET, serve_s3

FILES = [
    *("a.json", "b.json.gz", "sub/c.json", "sub/deep/d.json", ".hidden", "sub/.hidden"),
    ".git/e.json",
]
STANDS_FOR = {
    "": ["a.json", "b.json.gz", "c.json", "d.json"],
    "/*": ["a.json", "b.json.gz", "c.json", "d.json"],
    "/*.json": ["a.json"],
    "/s*": ["c.json", "d.json"],
    "/sub/c.json": ["c.json"],
    "/**/*.json": ["a.json", "c.json", "d.json"],
}


@pytest.fixture(params=["local", "memory"])
def folder(request, tmp_path):
    """A folder that lies in a hidden one."""
    folder = f"{tmp_path}/.cache/dumps"
    if request.param == "memory":
        folder = f"memory://{folder}"
    for name in FILES:
        storage.write_bytes(storage.join_path(folder, name), b"{}")
    yield folder
    if request.param == "memory":
        fsspec.filesystem("memory").rm(str(tmp_path), recursive=True)


@pytest.mark.parametrize("pattern", STANDS_FOR)
def test_what_a_pattern_stands_for(folder, pattern):
    found = [*storage.list_files([folder + pattern])]
    assert [path.rsplit("/", 1)[1] for path in found] == STANDS_FOR[pattern]
    assert all(storage.read_bytes(path) == b"{}" for path in found)


def test_brackets_in_the_name_of_a_file_are_no_pattern(folder):
    for name in ("reviews[1].json", "reviews1.json"):
        storage.write_bytes(storage.join_path(folder, "downloads", name), name.encode())
    [found] = storage.list_files([f"{folder}/downloads/reviews[1].json"])
    assert storage.read_bytes(found) == b"reviews[1].json"
    [found] = storage.list_files([f"{folder}/downloads/reviews[0-9].json"])
    assert storage.read_bytes(found) == b"reviews1.json"


def test_what_stands_for_nothing_is_named(folder):
    with refuses(field="withhold", value=f"{folder}/*.csv"):
        storage.list_files([f"{folder}/*.csv"], "withhold")


def test_a_file_whose_server_tells_no_length_is_refused(tmp_path, monkeypatch):
    path = f"memory://{tmp_path}/a.json"
    told = {"name": path, "size": None, "type": "file"}
    monkeypatch.setattr(type(storage.open_store(path)[0]), "info", lambda *_: told)
    with refuses("a.json", "Content-Length"):
        storage.expand_pattern(path)


def test_named_files_of_a_store_are_each_asked_for_once_and_side_by_side(tmp_path, monkeypatch):
    paths = [f"memory://{tmp_path}/{i}.json" for i in range(8)]
    there, _ = storage.open_store(paths[0])
    for path in paths:
        storage.write_bytes(path, b"{}")
    together, asked = threading.Barrier(8), []
    info = type(there).info

    def note_info(self, path):
        asked.append(path.rsplit("/", 1)[-1])
        together.wait(60)  # until as many others wait
        return info(self, path)

    monkeypatch.setattr(type(there), "info", note_info)
    monkeypatch.setattr(type(there), "exists", lambda _, path: pytest.fail(f"{path} again"))
    assert [*storage.list_files(paths)] == paths
    monkeypatch.undo()
    there.rm(str(tmp_path), recursive=True)
    assert sorted(asked) == [f"{i}.json" for i in range(8)]


def test_stretches_of_a_store_are_fetched_together_and_come_in_turn(tmp_path, monkeypatch):
    paths = [f"memory://{tmp_path}/{name}" for name in "ab"] + [str(tmp_path / "local")]
    for path in paths:
        storage.write_bytes(path, path[-1].encode() + bytes(range(100)))
    there, _ = storage.open_store(paths[0])
    groups, cat_ranges = [], there.cat_ranges

    def note_group(found, *words, **options):
        groups.append(len(found))
        return cat_ranges(found, *words, **options)

    monkeypatch.setattr(there, "cat_ranges", note_group)
    monkeypatch.setattr(storage, "READS_AT_ONCE", 4)
    wanted = [(paths[k % 2], k, k + 3 * (k % 4)) for k in range(14)]
    expected = [storage.read_range(*stretch) for stretch in wanted]
    assert list(storage.read_each(wanted)) == expected
    assert groups == [3, 3, 3]  # of the last two one is empty
    local = [(paths[2], 1, 3), (paths[2], 3, 3), (paths[2], 9, 10)]
    assert list(storage.read_each(local)) == [b"\0\1", b"", b"\b"]
    with pytest.raises(FileNotFoundError):
        list(storage.read_each([(paths[0], 0, 1), (f"{paths[0]}-missing", 0, 1)]))
    there.rm(str(tmp_path), recursive=True)


@pytest.mark.parametrize("place", ["a folder", "memory://bucket", f"s3://{BUCKET}"])
def test_changed_bytes_make_another_file(place, tmp_path, monkeypatch):
    with serve_s3(tmp_path / "s3") as s3:
        for name, value in s3.environment().items():
            monkeypatch.setenv(name, value)
        path = f"{tmp_path if place == 'a folder' else place}/reviews.json"
        storage.write_bytes(path, b"one")
        [path] = storage.list_files([path])
        before = storage.describe_identity(path)
        storage.check_unchanged(before)
        storage.list_files([path.rpartition("/")[0]])
        other, inner = fsspec.core.url_to_fs(path, skip_instance_cache=True)  # another process
        other.pipe_file(inner, b"two")
        assert storage.describe_identity(path)[1] == before[1]
        with refuses("reviews.json"):
            storage.check_unchanged(before)
        storage.list_files([path])
        assert storage.describe_identity(path) != before
        storage.remove_path(path)
        with refuses(socket.gethostname()) as missing:
            storage.check_unchanged(before)
        assert path in str(missing.value)
