"""New dumps: what is taken for whole, and one run for each, once."""

import os
import threading
import time

import pytest

from flows.store import Store
from flows.watch import arrivals, start_once

LONG_AGO = 1_000_000.0


def dump(path, text="{}", changed=LONG_AGO):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (changed, changed))
    return str(path)


def test_what_is_still_being_written_is_left_alone(tmp_path):
    now = time.time()
    older = dump(tmp_path / "b.json", changed=LONG_AGO)
    newer = dump(tmp_path / "a.json.gz", changed=LONG_AGO + 1)
    dump(tmp_path / "growing.json", changed=now - 5)
    dump(tmp_path / "empty.json", text="")
    dump(tmp_path / "upload.json.part")
    dump(tmp_path / ".hidden.json")
    (tmp_path / "folder").mkdir()
    for place in (str(tmp_path), f"{tmp_path}/*"):
        assert [a.path for a in arrivals([place], 60, now)] == [older, newer]
    assert len(arrivals([str(tmp_path)], 1, now)) == 3


def test_an_object_store_is_looked_at_the_same_way():
    import fsspec

    store = fsspec.filesystem("memory")
    store.pipe("/reviews/2024/a.json", b"{}")
    [found] = arrivals(["memory://reviews/2024/*.json"], 60, time.time())
    assert (found.path, found.size) == ("memory:///reviews/2024/a.json", 2)


def test_a_file_that_was_replaced_is_a_new_dump(tmp_path):
    dump(tmp_path / "a.json")
    [first] = arrivals([str(tmp_path)], 60, time.time())
    dump(tmp_path / "a.json", changed=LONG_AGO + 7)
    [second] = arrivals([str(tmp_path)], 60, time.time())
    assert first.key != second.key


@pytest.mark.usefixtures("prefect_home")
def test_two_watchers_and_a_crash_in_between_start_one_run(tmp_path):
    from prefect import flow
    from prefect.client.orchestration import get_client

    @flow(name="started-by-the-watcher")
    def started(dump: dict, preset: str) -> None: ...

    started.to_deployment(name="it", paused=True).apply()
    dump(tmp_path / "a.json")
    store = Store(tmp_path / "store")
    [arrival] = arrivals([str(tmp_path / "*.json")], 60, time.time())

    def watch():
        start_once(store, arrival, "started-by-the-watcher/it", {"preset": "tiny"})

    watchers = [threading.Thread(target=watch) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    for watcher in watchers:
        watcher.join(60)
    [note] = (store.root / "arrivals").iterdir()
    note.unlink()
    watch()
    with get_client(sync_client=True) as client:
        runs = [run for run in client.read_flow_runs(limit=200) if "new-dump" in run.tags]
    assert [run.parameters["dump"]["paths"] for run in runs] == [[arrival.path]]
    assert not start_once(store, arrival, "started-by-the-watcher/it", {})
