"""A store in a bucket: complete stages only, copies that are checked and bounded, makers on several
hosts, one after the other.
"""

import json
import shutil
import threading
import time

import pytest
from fsspec.core import url_to_fs

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.cli import main
from amazon_electra.flows.configuration.engine import Engine
from amazon_electra.flows.configuration.form import fill_parameters
from amazon_electra.flows.store.remote import shrink
from amazon_electra.flows.store.stage import ExistingStage, Resources, dict_of
from amazon_electra.flows.store.store import Store
from tests.flows.calls import call_of
from tests.flows.made import plan_stages
from tests.patience import eventually

CORPUS = ExistingStage("corpus", 1, {"seed": 0})
SHARDS = ExistingStage("shards", 1, {}, {"corpus": CORPUS})
FLINK = Engine(kind="flink", job_endpoint="localhost:8099", flink_master="localhost:8081")
ON_BOTH = pytest.mark.parametrize("address", ["s3", "gs"], indirect=True)


def make(store, stage=CORPUS, **files):
    """Make a stage of small files."""
    with store.lock_stage(stage) as folder:
        for name, content in (files or {"a.txt": "a" * 1000, "part/b.txt": "b" * 500}).items():
            write(folder / name, content)
        return store.publish(stage, {"kept": 1})


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def reach(store):
    """Return the server's objects."""
    return url_to_fs(store.address, use_listings_cache=False)[0]


def list_objects(store):
    start = len(store.address.partition("://")[2]) + 1
    return sorted(name[start:] for name in reach(store).find(store.address))


@ON_BOTH
def test_what_one_host_makes_another_reads(open_host):
    here, there = open_host("here"), open_host("there")
    assert there.manifest(CORPUS) is None
    manifest = make(here)
    assert there.manifest(CORPUS) == manifest
    assert not there.folder(CORPUS).exists(), "nothing is fetched before it is read"
    folder = there.fetch(CORPUS)
    assert (folder / "part" / "b.txt").read_text() == "b" * 500
    start = f"corpus/{CORPUS.fingerprint}"
    files = f"{start}/{manifest['attempt']}"
    names = [f"{files}/a.txt", f"{files}/part/b.txt", f"{start}/manifest.json"]
    assert list_objects(here) == names
    assert [m["fingerprint"] for m in there.list_manifests()] == [CORPUS.fingerprint]


def test_a_copy_that_was_damaged_is_noticed_and_fetched_again(open_host, heard):
    make(open_host("here"))
    there = open_host("there")
    file = there.fetch(CORPUS) / "a.txt"
    file.write_text("A" * 1000)
    assert open_host("there").fetch(CORPUS) == file.parent
    assert file.read_text() == "a" * 1000
    file.write_text("a")
    open_host("there").fetch(CORPUS)
    assert file.read_text() == "a" * 1000
    assert len({r.created for r in heard.records if "is damaged" in r.getMessage()}) == 2


def test_a_manifest_writes_nothing_beside_the_copy(open_host):
    here, there = open_host("here"), open_host("there")
    manifest = make(here)
    name = f"{there.address}/corpus/{CORPUS.fingerprint}"
    reach(here).pipe_file(f"{there.address}/corpus/evil", b"e" * 1000)
    manifest["files"][0]["path"] = "../evil"
    reach(here).pipe_file(f"{name}/manifest.json", json.dumps(manifest).encode())
    with pytest.raises(UserError, match=r"\.\./evil"):
        there.fetch(CORPUS)
    assert not (there.root / "corpus" / "evil").exists()


def test_a_stage_whose_object_is_damaged_is_not_used(open_host):
    make(open_host("here"))
    there = open_host("there")
    reach(there).pipe_file(f"{there.locate(CORPUS)}/a.txt", b"z" * 1000)
    with pytest.raises(UserError, match=r"a\.txt"):
        there.fetch(CORPUS)
    assert not (there.folder(CORPUS) / "a.txt").exists()


def test_copies_stay_within_the_bound_and_those_used_last_stay(open_host, monkeypatch):
    stages = [ExistingStage("corpus", 1, {"seed": seed}) for seed in range(4)]
    for stage in stages:
        make(open_host("here"), stage, **{"a.txt": "a" * 1000})
    there = open_host("there")
    monkeypatch.setenv("AMAZON_ELECTRA_CACHE_GB", "0.000005")
    for stage in stages[:3]:
        there.fetch(stage)
        time.sleep(0.02)  # the times of use must differ
    there.fetch(stages[0])
    monkeypatch.setenv("AMAZON_ELECTRA_CACHE_GB", "0.0000045")
    there.fetch(stages[3])
    kept = [stage for stage in stages if (there.folder(stage) / "a.txt").exists()]
    assert stages[0] in kept
    assert stages[3] in kept
    assert stages[1] not in kept
    used = [p for p in there.root.glob("*/*/*") if p.is_file()]
    assert sum(path.stat().st_size for path in used) <= 4500 + 1000


def test_what_a_job_reads_stays_however_small_the_bound(open_host, monkeypatch):
    make(open_host("here"))
    monkeypatch.setenv("AMAZON_ELECTRA_CACHE_GB", "0")
    there = open_host("there")
    with there.lock_stage(SHARDS):
        folder = there.fetch(CORPUS)
        shrink(there.root)
        assert (folder / "a.txt").exists()
        there.publish(SHARDS, {})
    shrink(there.root)
    assert not (folder / "a.txt").exists()


@ON_BOTH
def test_another_host_continues_from_what_was_uploaded(open_host):
    """The first one is lost: its folder stays as it was, its heartbeat stands still."""
    here, there = open_host("here"), open_host("there")
    first = here.lock_stage(CORPUS)
    folder = first.__enter__()
    write(folder / "metrics.jsonl", "1\n")
    write(folder / "checkpoints/step-1/state", "one")
    eventually(lambda: any("step-1/state" in name for name in list_objects(here)))
    write(folder / "metrics.jsonl", "1\n2\n")
    write(folder / "checkpoints/step-2/state", "two")
    (folder / "checkpoints/step-1/state").unlink()
    eventually(lambda: not any("step-1/state" in name for name in list_objects(here)))
    lose_host(here)
    assert there.manifest(CORPUS) is None
    with there.lock_stage(CORPUS) as found:
        assert (found / "checkpoints/step-2/state").read_text() == "two"
        assert (found / "metrics.jsonl").read_text() == "1\n2\n"
        write(found / "a.txt", "a")
        (found / "checkpoints/step-2/state").unlink()
        manifest = there.publish(CORPUS, {})
    start = f"corpus/{CORPUS.fingerprint}"
    files = f"{start}/{manifest['attempt']}"
    names = [f"{files}/a.txt", f"{files}/metrics.jsonl", f"{start}/manifest.json"]
    assert list_objects(there) == names


@ON_BOTH
def test_a_maker_that_comes_back_changes_nothing_that_readers_see(open_host):
    """A sends no heartbeat, B makes the stage, A goes on all the while and ends last: with other
    bytes under the same names.
    """
    late, other, reader = map(open_host, ("late", "other", "reader"))
    held = late.lock_stage(CORPUS)
    folder = held.__enter__()
    write(folder / "a.txt", "late")
    lose_host(late)
    with other.lock_stage(CORPUS) as found:
        write(found / "a.txt", "whole")
        manifest = other.publish(CORPUS, {"kept": 1})
    before = {n: reach(other).cat_file(f"{other.address}/{n}") for n in list_objects(other)}
    write(folder / "a.txt", "changed again")
    write(folder / "b.txt", "of its own")
    assert late.publish(CORPUS, {"kept": 2}) == manifest
    held.__exit__(None, None, None)
    after = {n: reach(other).cat_file(f"{other.address}/{n}") for n in list_objects(other)}
    assert after == before
    for store in (late, other, reader):
        assert (store.fetch(CORPUS) / "a.txt").read_text() == "whole"
        assert store.manifest(CORPUS) == manifest


def call(*words):
    """The exit code of a command of ours."""
    return main.attempt(main.build_parser().parse_args(words))


def lose_host(store):
    """Stop what a host does in the background, as its loss does."""
    [attempt] = store.place._attempts.values()
    attempt.stop()


def test_a_host_that_comes_back_goes_on_with_what_it_has(open_host):
    """What was not uploaded yet is not lost with the process."""
    with open_host("here").lock_stage(SHARDS) as folder:
        write(folder / "a.txt", "last word")
    with open_host("here").lock_stage(SHARDS) as folder:
        assert (folder / "a.txt").read_text() == "last word"


def test_what_its_maker_removed_is_not_continued_from(open_host):
    """As a stage's runner does where a dump changed while it was read."""
    here = open_host("here")
    with here.lock_stage(SHARDS) as folder:
        write(folder / "a.txt", "of another dump")
        eventually(lambda: any(name.endswith("/a.txt") for name in list_objects(here)))
        shutil.rmtree(folder)
    for host in ("here", "there"):
        with open_host(host).lock_stage(SHARDS) as folder:
            assert not (folder / "a.txt").exists()


def test_an_engines_workers_write_to_the_bucket_and_what_they_made_is_published(open_host):
    here = open_host("here")
    with here.lock_stage(CORPUS) as folder:
        write(folder / "log.txt", "words")
        there = here.open_output(folder, on_engine=True)
        assert there == here.locate(CORPUS)
        reach(here).pipe_file(f"{there}/part/b.parquet", b"b" * 500)
        here.collect_output(
            ExistingStage("corpus", 1, {"seed": 0}, resources=Resources(engine=FLINK))
        )
        manifest = here.publish(CORPUS, {})
    assert [(file["path"], file["size"]) for file in manifest["files"]] == [("part/b.parquet", 500)]
    assert (open_host("there").fetch(CORPUS) / "part/b.parquet").read_bytes() == b"b" * 500


def test_jobs_of_an_engine_are_given_addresses(open_host, tmp_path):
    """Those of this machine are given its copies. Fingerprints do not depend on either."""
    engine = [f"engine.{name}={value}" for name, value in dict_of(FLINK).items()]
    remote, local = open_host("here"), Store(tmp_path / "local")

    def read_call(store, settings):
        form = fill_parameters(settings, dump={"paths": ["sample:50"]}, store=store.address)
        [shards] = [stage for stage in plan_stages(form, store) if stage.name == "shards"]
        return shards, call_of(shards, store)

    far, given = read_call(remote, engine)
    near, copies = read_call(remote, [])
    assert far.fingerprint == near.fingerprint
    assert given["output"] == remote.locate(far)
    assert str(remote.root) not in f"{given['corpus']} {given['vocabulary']}"
    assert copies["output"] == str(remote.folder(near))
    in_folder, given = read_call(local, [])
    assert in_folder.fingerprint == near.fingerprint
    assert read_call(local, engine)[1]["output"] == given["output"]


def test_of_two_that_want_a_stage_one_makes_it_and_the_other_uses_it(open_host):
    stores, made, waited = [open_host("here"), open_host("there")], [], []
    gate = threading.Barrier(2)

    def want(store):
        gate.wait()
        with store.lock_stage(CORPUS, lambda: waited.append(store)) as folder:
            if store.manifest(CORPUS) is None:
                made.append(store)
                eventually(lambda: waited)
                write(folder / "a.txt", "a")
                store.publish(CORPUS, {})

    threads = [threading.Thread(target=want, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == len(waited) == 1
    assert made != waited
    assert all((store.fetch(CORPUS) / "a.txt").read_text() == "a" for store in stores)


@pytest.mark.parametrize(
    ("user", "given", "words"),
    [
        ("owner", "s3://nowhere/x", "no such bucket"),
        ("reader", "s3://store/x", "rights there"),
        ("owner", "s3://", "it has no bucket"),
        ("owner", "hdfs://store/x", "results go to a local folder"),
        ("owner", "s3://KEY:TOPSECRET@store/x", "a password"),
    ],
)
def test_what_keeps_us_from_a_bucket_is_one_line(
    as_user, tmp_path, monkeypatch, capsys, user, given, words
):
    monkeypatch.setenv("AMAZON_ELECTRA_STATE", str(tmp_path))
    as_user(user)
    assert call("run", "--dump", "sample:50", "--store", given) == 2
    [error] = capsys.readouterr().err.splitlines()
    assert words in error
    assert "TOPSECRET" not in error


@pytest.mark.parametrize(
    ("scheme", "status", "message", "code", "words"),
    [
        ("s3", 403, "", 2, "cannot be reached: Forbidden"),
        ("gs", 403, "no storage.objects.get access", 2, "storage.objects.get access"),
        ("gs", 502, "", 75, "cannot be reached"),
    ],
)
def test_what_keeps_us_from_a_dump_in_a_bucket_is_one_line(
    as_user, gs, tmp_path, capsys, scheme, status, message, code, words
):
    as_user("nobody")
    gs.refuse(status, message)
    assert call("run", "--dump", f"{scheme}://store/x.json", "--store", str(tmp_path)) == code
    [error] = capsys.readouterr().err.splitlines()
    assert words in error


def test_a_machines_part_of_a_store_is_opened_as_that_store(address, tmp_path, monkeypatch):
    """The servers are given a folder; runs that they start belong to the bucket."""
    monkeypatch.setenv("AMAZON_ELECTRA_STATE", str(tmp_path))
    store = Store(address)
    store.place.check_access()
    assert store.root.parent == tmp_path
    assert Store(store.root).address == address


def test_the_commands_show_and_prune_a_store_in_a_bucket(
    open_host, address, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("AMAZON_ELECTRA_STATE", str(tmp_path))
    here = open_host("here")
    make(here)
    report = ExistingStage("report", 1, {}, {"corpus": CORPUS})
    make(here, report, **{"report.md": "r" * 100})
    begun = ExistingStage("corpus", 1, {"seed": 1})
    with here.lock_stage(begun) as folder:  # its job fails
        write(folder / "a.txt", "a" * 2000)
        eventually(lambda: any(f"{begun.fingerprint}/a" in n for n in list_objects(here)))

    def run(*words, code=0):
        assert call(*words, "--store", address) == code
        return capsys.readouterr().out

    assert report.fingerprint in run("runs")
    assert json.loads(run("show", CORPUS.fingerprint, "--json"))["result"] == {"kept": 1}
    assert begun.fingerprint in run("prune")
    assert any(begun.fingerprint in name for name in list_objects(here)), "a dry run"
    with open_host("there").lock_stage(SHARDS):
        run("prune", "--keep", report.fingerprint, "--yes", code=2)
    run("prune", "--yes")
    left = list_objects(here)
    assert not any(begun.fingerprint in name for name in left)
    assert any(CORPUS.fingerprint in name for name in left)
