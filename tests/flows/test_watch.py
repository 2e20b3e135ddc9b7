"""New dumps: what is taken for whole, and one run for each, once, whatever happens to the watchers."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from beam_jobs import storage
from flows.arrivals import arrivals, is_named_like_a_dump
from flows.settings import from_settings
from flows.stages import dump as dump_stage
from flows.store import Store
from flows.watch import NotStarted, Watch, look, notes_of
from tests.flows.made import made_run

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
        assert [a.path for a in arrivals([place], 60, now).whole] == [older, newer]
    first = arrivals([str(tmp_path)], 1, now)
    assert [os.path.basename(path) for path in first.left_alone] == ["growing.json"], "it is seen for the first time"
    assert len(arrivals([str(tmp_path)], 1, now, first.sizes).whole) == 3
    dump(tmp_path / "growing.json", text="{} {}", changed=now - 5)
    assert len(arrivals([str(tmp_path)], 1, now, first.sizes).whole) == 2, "an upload that had stalled went on"


def test_an_announced_dump_is_taken_at_once_and_no_other(tmp_path):
    now = time.time()
    inbox = tmp_path / "inbox"
    announced, other = dump(inbox / "a.json", changed=now), dump(inbox / "b.json", changed=now)
    (tmp_path / "by_another_name").symlink_to(inbox)
    for name in (announced, f"file://{announced}", str(tmp_path / "by_another_name" / "a.json")):
        found = arrivals([str(inbox)], 60, now, None, name)
        assert [arrival.path for arrival in found.whole] == [announced]
        assert (list(found.left_alone), found.not_taken) == ([other], "")


def test_an_announced_object_is_known_by_its_address():
    import fsspec

    fsspec.filesystem("memory").pipe("/announced/a.json", b"{}")
    for name in ("memory://announced/a.json", "memory:///announced/a.json"):
        assert arrivals(["memory://announced/*.json"], 60, time.time(), None, name).not_taken == ""


@pytest.mark.parametrize(
    ("announced", "why"),
    [
        ("elsewhere/a.json", "it lies in none of watch.places"),
        ("inbox/nothing.json", "there is no such file"),
        ("inbox/empty.json", "it is empty, or named like what is not whole yet"),
        ("inbox/README.md", "its name does not end like a dump's"),
        ("no-such://bucket/a.json", "announced no-such://bucket/a.json cannot be reached: Protocol not known"),
    ],
)
def test_an_announced_dump_that_is_not_taken_is_told_and_keeps_no_other_waiting(tmp_path, announced, why):
    dump(tmp_path / "elsewhere" / "a.json")
    dump(tmp_path / "inbox" / "empty.json", text="")
    dump(tmp_path / "inbox" / "README.md")
    other = dump(tmp_path / "inbox" / "b.json")
    address = announced if "://" in announced else str(tmp_path / announced)
    found = arrivals([str(tmp_path / "inbox")], 60, time.time(), None, address)
    assert found.not_taken.startswith(why)
    assert [arrival.path for arrival in found.whole] == [other]
    assert found.left_alone == {} or not announced.endswith(".md"), "it is told once"


def test_only_what_is_named_like_a_dump_is_one():
    dumps = "a.json a.JSONL a.ndjson.gz a.csv a.tsv.gz train.ft.txt.bz2 a.parquet a.json.zst a.zip a.gz b.2018.json.gz"
    assert [name for name in dumps.split() if not is_named_like_a_dump(f"/x.y/{name}")] == []
    others = "README.md c.json.sha256 SUCCESS notes.md.gz model.pt a.json.md5 a"
    assert [name for name in others.split() if is_named_like_a_dump(f"/x.y/{name}")] == []


def test_what_lies_beside_dumps_is_left_alone_and_it_is_said_why(tmp_path):
    for name in ("README.md", "_SUCCESS", "_temporary.json", "a.json.aria2", "a.json.filepart", ".a.json.swp"):
        dump(tmp_path / name)
    ahead = dump(tmp_path / "ahead.json", changed=time.time() + 5000)
    found = arrivals([str(tmp_path)], 60, time.time())
    assert found.whole == []
    assert {os.path.basename(path): why for path, why in found.left_alone.items()}.keys() == {"README.md", "ahead.json"}
    assert "in the future; set its time" in found.left_alone[ahead]


def test_a_link_is_what_it_leads_to(tmp_path):
    dump(tmp_path / "elsewhere" / "a.json", text="{12345}")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link.json").symlink_to("../elsewhere/a.json")
    (tmp_path / "in" / "broken.json").symlink_to("nowhere")
    (tmp_path / "in" / "folder.json").symlink_to(tmp_path)
    [found] = arrivals([str(tmp_path / "in")], 60, time.time()).whole
    assert (found.path, found.size, found.changed) == (str(tmp_path / "in" / "link.json"), 7, LONG_AGO)


def test_an_object_store_is_looked_at_the_same_way():
    import fsspec

    store = fsspec.filesystem("memory")
    store.pipe("/reviews/2024/a.json", b"{}")
    [found] = arrivals(["memory://reviews/2024/*.json"], 60, time.time()).whole
    assert (found.path, found.size) == ("memory:///reviews/2024/a.json", 2)


def test_brackets_in_the_name_of_a_folder_or_a_file_are_no_pattern(tmp_path):
    path = dump(tmp_path / "reviews [2024]" / "reviews[1].json")
    dump(tmp_path / "reviews 2" / "reviews1.json")
    for place in (os.path.dirname(path), path):
        assert [arrival.path for arrival in arrivals([place], 60, time.time()).whole] == [path]
    form = from_settings([], dump={"paths": [path]}, store=str(tmp_path / "store"))
    reviews = dump_stage.stage(form, Store(form.store))
    assert reviews.result["paths"] == [path]
    assert storage.expand(reviews.result["paths"]) == [path], "the jobs read the same file"


def test_brackets_in_the_name_of_an_object_are_no_pattern(tmp_path):
    import fsspec

    for name in ("reviews[1].json", "reviews1.json"):
        fsspec.filesystem("memory").pipe(f"/brackets/{name}", name.encode())
    [found] = arrivals(["memory://brackets/reviews[[]*"], 60, time.time()).whole
    [file] = dump_stage.remote_files(found.path, Store(tmp_path))
    assert (file.name, file.size) == ("reviews[1].json", 15)
    assert storage.read_bytes(file.path) == b"reviews[1].json"


def test_a_place_that_cannot_be_reached_keeps_no_other_waiting(tmp_path, monkeypatch):
    def away(*given, **named):
        raise PermissionError("no credentials")

    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.isdir", away)
    path = dump(tmp_path / "a.json")
    found = arrivals(["memory://bucket/*", str(tmp_path)], 60, time.time())
    assert [arrival.path for arrival in found.whole] == [path]
    assert found.unreachable == ["watch.places memory://bucket/* cannot be reached: no credentials"]
    assert found.missing == []


def test_a_place_that_is_not_there_is_told(tmp_path):
    (tmp_path / "empty").mkdir()
    there = [str(tmp_path / "empty"), f"{tmp_path}/empty/*.json", f"{tmp_path}/**/*.json"]
    missing = [str(tmp_path / "nowhere"), f"{tmp_path}/no*/where/*.json", f"{tmp_path}/typo/*", "memory://no-such/*"]
    assert arrivals([*there, *missing], 60, time.time()).missing == [missing[0], *missing[2:]]


def test_a_file_that_was_replaced_is_a_new_dump(tmp_path):
    dump(tmp_path / "a.json")
    [first] = arrivals([str(tmp_path)], 60, time.time()).whole
    dump(tmp_path / "a.json", changed=LONG_AGO + 7)
    [second] = arrivals([str(tmp_path)], 60, time.time()).whole
    assert first.key != second.key


@pytest.fixture
def store(tmp_path, prefect_home):
    """A store with a finished run, on a server that has both deployments and nobody who works on them."""
    from flows.add_dump import add_dump
    from flows.domain_adaptation import domain_adaptation

    for flow in (add_dump, domain_adaptation):
        flow.to_deployment(name=flow.name).apply()
    return Store(tmp_path / "store")


def runs(store):
    """The runs that were started for dumps of this store, in the order of their creation."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.sorting import FlowRunSort

    with get_client(sync_client=True) as client:
        found = client.read_flow_runs(limit=200, sort=FlowRunSort.EXPECTED_START_TIME_ASC)
    mine = [run for run in found if "new-dump" in run.tags and run.parameters["store"] == str(store.root)]
    return sorted(mine, key=lambda run: run.created)


def paths(found):
    return [os.path.basename(run.parameters["dump"]["paths"][0]) for run in found]


def test_two_watchers_at_once_start_one_run_for_each(store):
    for name in ("a", "b", "c"):
        dump(store.root / "inbox" / f"{name}.json")
    watchers = [threading.Thread(target=look, args=(store, Watch())) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    for watcher in watchers:
        watcher.join(120)
    assert paths(runs(store)) == ["a.json", "b.json", "c.json"]
    assert look(store, Watch()) == []
    dump(store.root / "inbox" / "d.json")
    assert [os.path.basename(path) for path in look(store, Watch())] == ["d.json"]


def test_an_announced_dump_that_lies_in_the_store_starts_its_run_with_the_first_look(store, heard):
    dump(store.root / "inbox" / "a.json", changed=time.time())
    assert look(store, Watch(), announced="outbox/a.json") == []
    assert "announced, but not taken: outbox/a.json: there is no such file" in heard.text
    look(store, Watch(), announced="inbox/a.json")
    assert paths(runs(store)) == ["a.json"]


def test_watchers_that_cannot_see_each_other_start_one_run_for_each(store):
    """Their notes are lost in between, as on machines that share no file system."""
    dump(store.root / "inbox" / "a.json")
    for _ in range(2):
        look(store, Watch())
        [note] = (store.root / "arrivals").glob("*.json")
        note.unlink()
    assert paths(runs(store)) == ["a.json"]


DIES = """
import os, signal, sys
import prefect.deployments as deployments
from flows.store import Store
from flows.watch import Watch, look
start = deployments.run_deployment
def dying(*given, **named):
    if sys.argv[2] == "after":
        start(*given, **named)
    os.kill(os.getpid(), signal.SIGKILL)
deployments.run_deployment = dying
look(Store(sys.argv[1]), Watch())
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_watcher_killed_between_seeing_and_starting(store, moment):
    """Or between starting and noting it: the next look starts what was left, once, and in the same order."""
    dump(store.root / "inbox" / "b.json")
    killed = subprocess.run([sys.executable, "-c", DIES, str(store.root), moment], timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert [note for note in notes_of(store) if "flow_run" in note] == []
    assert len(runs(store)) == (moment == "after")
    dump(store.root / "inbox" / "a.json", changed=LONG_AGO - 1)
    look(store, Watch())
    assert paths(runs(store)) == ["b.json", "a.json"]
    assert [str(run.id) for run in runs(store)] == [note["flow_run"] for note in notes_of(store)]


def test_dumps_that_are_added_chain_in_the_order_of_their_arrival(store):
    encoder = made_run(store.root)
    added = Watch(each="added")
    dump(store.root / "inbox" / "b.json", "{1}", LONG_AGO + 2)
    dump(store.root / "inbox" / "c.json", "{2}", LONG_AGO + 1)
    look(store, added)
    dump(store.root / "inbox" / "a.json", "{3}", LONG_AGO)
    look(store, added)
    found = runs(store)
    assert paths(found) == ["c.json", "b.json", "a.json"]
    assert {run.flow_id for run in found} == {found[0].flow_id}
    bases = [run.parameters["increment"]["base"] for run in found]
    assert bases[0] == encoder
    assert bases[1:] == [note["makes"] for note in notes_of(store)][:2]
    assert len(set(bases)) == 3


def test_two_stores_on_one_server_each_have_their_run(store, tmp_path):
    path = dump(tmp_path / "shared" / "a.json")
    other = Store(tmp_path / "other")
    for one in (store, other):
        look(one, Watch(places=[path]))
    assert [paths(runs(one)) for one in (store, other)] == [["a.json"], ["a.json"]]


def test_a_note_that_cannot_be_started_keeps_no_other_waiting(store):
    bad = {"path": "/bad.json", "key": "bad", "number": 1, "deployment": "no-such/deployment", "parameters": {}}
    (store.root / "arrivals").mkdir(parents=True)
    (store.root / "arrivals" / "bad.json").write_text(json.dumps(bad))
    dump(store.root / "inbox" / "a.json")
    for _ in range(2):
        with pytest.raises(NotStarted, match=r"1 runs could not be started.*/bad\.json: "):
            look(store, Watch())
    assert paths(runs(store)) == ["a.json"]


def test_a_look_tells_of_its_places_at_the_end(store, heard):
    dump(store.root / "inbox" / "a.json")
    with pytest.raises(NotStarted, match=r"^watch\.places no-such://bucket/a cannot be reached: Protocol"):
        look(store, Watch(places=["no-such://bucket/a", "inbx/*", "inbox/*"]))
    assert f"watch.places: there is no {store.root}/inbx/*; relative places lie in the store" in heard.text
    assert paths(runs(store)) == ["a.json"]


def test_the_inbox_is_there_after_the_first_look(store, heard):
    assert look(store, Watch()) == []
    assert (store.root / "inbox").is_dir()
    assert "there is no" not in heard.text


def test_without_a_model_to_add_to_nothing_is_started(store):
    dump(store.root / "inbox" / "a.json")
    with pytest.raises(NotStarted, match=r"increment\.base: last is no model in"):
        look(store, Watch(each="added"))
    assert runs(store) == []
    assert notes_of(store) == []
