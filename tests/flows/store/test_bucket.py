"""A store in a bucket: complete stages only, checked copies, the first of several makers; what a
server of objects may answer, and what somebody else may have put there.
"""

import io
import shutil
import zipfile
from contextlib import nullcontext
from functools import partial

import pytest
from fsspec.core import url_to_fs

from amazon_electra.beam_jobs.core.errors import TransientError, UserError
from amazon_electra.flows.cli import main
from amazon_electra.flows.configuration.engine import Engine
from amazon_electra.flows.store.bucket import Bucket
from amazon_electra.flows.store.stage import Resources, dict_of
from amazon_electra.flows.store.store import Store
from tests.flows.calls import call_of
from tests.flows.fakes import FakeStage
from tests.flows.forms import fill_parameters
from tests.flows.made import plan_stages
from tests.patience import eventually
from tests.refusals import refuses

CORPUS = FakeStage("corpus", 1, {"seed": 0})
HOME = f"bucket/store/{CORPUS.path}"
FLINK = Engine(kind="flink", job_endpoint="localhost:8099", flink_master="localhost:8081")


class Trained(FakeStage):
    """A stage with checkpoints."""

    scratch = ("checkpoints",)


PRETRAINING = Trained("pretraining", 1, {"seed": 0})
ON_BOTH = pytest.mark.parametrize("address", ["s3", "gs"], indirect=True)
ON_GS = pytest.mark.parametrize("address", ["gs"], indirect=True)


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


def call(*words):
    """The exit code of a command of ours."""
    return main.run_words(words)


@ON_BOTH
def test_what_one_host_makes_another_reads(open_host):
    here, there = open_host("here"), open_host("there")
    assert there.manifest(CORPUS) is None
    manifest = make(here)
    assert there.manifest(CORPUS) == manifest
    assert not there.folder(CORPUS).exists(), "nothing is fetched before it is read"
    folder = there.fetch(CORPUS)
    assert (folder / "part" / "b.txt").read_text() == "b" * 500
    files = f"{CORPUS.path}/{manifest['attempt']}"
    names = [f"{files}/a.txt", f"{files}/part/b.txt", f"{CORPUS.path}/manifest.json"]
    assert list_objects(here) == names
    assert there.list_manifests() == [manifest]


def test_a_copy_that_was_damaged_is_fetched_again_and_a_damaged_object_is_not_used(open_host):
    make(open_host("here"))
    there = open_host("there")
    file = there.fetch(CORPUS) / "a.txt"
    for damage in ("A" * 1000, "a"):
        file.write_text(damage)
        open_host("there").fetch(CORPUS)
        assert file.read_text() == "a" * 1000
    file.unlink()
    reach(there).pipe_file(f"{there.locate(CORPUS)}/a.txt", b"z" * 1000)
    with pytest.raises(UserError):
        there.fetch(CORPUS)
    assert not file.exists()


@ON_BOTH
def test_another_host_continues_from_the_newest_checkpoint(open_host):
    """The first one is lost: its folder stays as it was."""
    here, there = open_host("here"), open_host("there")
    first = here.lock_stage(PRETRAINING)
    folder = first.__enter__()
    write(folder / "metrics.jsonl", "1\n")
    write(folder / "checkpoints/step-1/state", "one")
    write(folder / "checkpoints/writing-step-2/state", "half")
    checkpoint = f"{here.address}/{PRETRAINING.path}/checkpoint.zip"
    eventually(lambda: reach(here).exists(checkpoint))
    first_size = reach(here).size(checkpoint)
    write(folder / "metrics.jsonl", "1\n2\n")
    write(folder / "checkpoints/step-2/state", "two")
    shutil.rmtree(folder / "checkpoints/step-1")
    eventually(lambda: reach(here).size(checkpoint) != first_size)
    assert there.manifest(PRETRAINING) is None
    with there.lock_stage(PRETRAINING) as found:
        assert (found / "checkpoints/step-2/state").read_text() == "two"
        assert (found / "metrics.jsonl").read_text() == "1\n2\n"
        assert not (found / "checkpoints/writing-step-2").exists()
        write(found / "a.txt", "a")
        manifest = there.publish(PRETRAINING, {})
    files = f"{PRETRAINING.path}/{manifest['attempt']}"
    names = [f"{files}/a.txt", f"{files}/metrics.jsonl", f"{PRETRAINING.path}/manifest.json"]
    assert list_objects(there) == names
    assert not list(there.folder(PRETRAINING).glob(".*"))
    first.__exit__(None, None, None)
    assert list_objects(there) == names, "who comes back uploads nothing more"


@ON_BOTH
def test_of_two_makers_the_first_wins(open_host):
    late, first, reader = map(open_host, ("late", "first", "reader"))
    with late.lock_stage(CORPUS) as folder:
        write(folder / "a.txt", "late")
        write(folder / "b.txt", "of its own")
        manifest = make(first, **{"a.txt": "whole"})
        before = list_objects(first)
        assert late.publish(CORPUS, {"kept": 2}) == manifest
    assert list_objects(first) == before
    for store in (late, first, reader):
        assert (store.fetch(CORPUS) / "a.txt").read_text() == "whole"
        assert store.manifest(CORPUS) == manifest


def test_an_engines_workers_write_to_the_bucket_and_what_they_made_is_published(open_host):
    here = open_host("here")
    far = FakeStage("corpus", 1, {"seed": 0}, resources=Resources(engine=FLINK))
    with here.lock_stage(far) as folder:
        write(folder / "log.txt", "words")
        reach(here).pipe_file(f"{here.open_output(far)}/part/b.parquet", b"b" * 500)
        manifest = here.publish(far, {})
    assert [(file["path"], file["size"]) for file in manifest["files"]] == [("part/b.parquet", 500)]
    assert (open_host("there").fetch(CORPUS) / "part/b.parquet").read_bytes() == b"b" * 500


def test_jobs_of_an_engine_are_given_addresses(open_host, tmp_path):
    """Those of this machine are given its copies. Fingerprints do not depend on either."""
    engine = [f"engine.{name}={value}" for name, value in dict_of(FLINK).items()]
    remote, local = open_host("here"), Store(tmp_path / "local")

    def read_call(store, settings):
        form = fill_parameters(settings, dump={"paths": ["sample:50"]}, store=store.address)
        pretraining = next(s for s in plan_stages(form, store) if s.name == "pretraining")
        shards = pretraining.inputs["shards"]
        return shards, call_of(shards, store)

    far, given = read_call(remote, engine)
    near, copies = read_call(remote, [])
    assert far.fingerprint == near.fingerprint == read_call(local, [])[0].fingerprint
    assert given["output"] == remote.open_output(far)
    assert str(remote.root) not in f"{given['corpus']} {given['vocabulary']}"
    assert copies["output"] == str(remote.folder(near))


def test_the_commands_show_and_prune_a_store_in_a_bucket(
    open_host, address, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    here = open_host("here")
    make(here)
    report = FakeStage("report", 1, {}, {"corpus": CORPUS})
    make(here, report, **{"report.md": "r" * 100})
    begun = Trained("corpus", 1, {"seed": 1})
    with here.lock_stage(begun) as folder:  # its job fails
        write(folder / "checkpoints/step-1/state", "a" * 2000)

    def run(*words):
        assert call(*words, "--store", address) == 0
        return capsys.readouterr().out

    assert report.fingerprint in run("runs")
    assert "kept 1" in run("show", CORPUS.fingerprint)
    assert begun.fingerprint in run("prune")
    assert any(begun.fingerprint in name for name in list_objects(here)), "a dry run"
    run("prune", "--yes")
    left = list_objects(here)
    assert not any(begun.fingerprint in name for name in left)
    assert any(CORPUS.fingerprint in name for name in left)


@pytest.mark.parametrize(
    "names", [None, ("../evil", "../../../evil", "/etc/evil", "checkpoints/x")]
)
@ON_GS
def test_a_checkpoint_of_somebody_else_leads_out_of_no_folder(open_host, gs, tmp_path, names):
    packed = io.BytesIO(b"no archive")
    with zipfile.ZipFile(packed, "w") if names else nullcontext() as file:
        for name in names or ():
            file.writestr(name, "evil")
    gs.objects[f"bucket/store/{PRETRAINING.path}/checkpoint.zip"] = packed.getvalue()
    there = open_host("there")
    with there.lock_stage(PRETRAINING) as folder:
        found = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
        assert list(map(str, found)) == (["checkpoints/x"] if names else [])
    assert not [path for path in tmp_path.rglob("evil") if folder not in path.parents]


@ON_GS
def test_prune_removes_nothing_beside_the_stores_part_of_this_machine(
    open_host, gs, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    store = Store("gs://bucket/store")
    beside = store.root.parent / "0123456789abcdef"
    beside.mkdir(parents=True)
    make(open_host("here"))
    for name in ("../0123456789abcdef/x/y", f"{beside}/x"):
        gs.objects[f"bucket/store/{name}"] = b"x"
    assert call("prune", "--yes", "--store", "gs://bucket/store") == 0
    assert beside.exists()


@pytest.mark.parametrize(
    ("user", "given"),
    [
        ("owner", "s3://nowhere/x"),
        ("reader", "s3://store/x"),
        ("owner", "s3://"),
        ("owner", "hdfs://store/x"),
        ("owner", "s3://KEY:TOPSECRET@store/x"),
    ],
)
def test_what_keeps_us_from_a_bucket_is_one_line(
    as_user, tmp_path, monkeypatch, capsys, user, given
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    as_user(user)
    assert call("run", "--dump", "sample:50", "--store", given) == 2
    [error] = capsys.readouterr().err.splitlines()
    assert "store" in error
    assert "TOPSECRET" not in error


@pytest.mark.parametrize(
    ("scheme", "status", "message", "code"),
    [
        ("s3", 403, "", 2),
        ("gs", 403, "no storage.objects.get access", 2),
        ("gs", 502, "", 75),
    ],
)
def test_what_keeps_us_from_a_dump_in_a_bucket_is_one_line(
    as_user, gs, tmp_path, capsys, scheme, status, message, code
):
    as_user("nobody")
    gs.refuse(status, message)
    assert call("run", "--dump", f"{scheme}://store/x.json", "--store", str(tmp_path)) == code
    [error] = capsys.readouterr().err.splitlines()
    assert f"{scheme}://store/x.json" in error
    assert message in error


def test_a_server_that_is_away_is_asked_again(as_user, gs):
    as_user("owner", AWS_ENDPOINT_URL="http://127.0.0.1:1")
    with pytest.raises(TransientError):
        Bucket("s3://bucket/x", patience=0).read("a")
    gs.refuse(503, "Backend Error", times=7)  # gcsfs itself asks six times
    assert Bucket("gs://bucket/x", patience=60).read("a") is None
    gs.refuse(503, "Backend Error")
    with pytest.raises(TransientError):
        Bucket("gs://bucket/x", patience=0).read("a")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (403, "a does not have storage.objects.create access"),
        (401, "Anonymous caller does not have access"),
        (404, "The specified bucket does not exist."),
    ],
)
def test_what_the_user_can_put_right_on_gs_is_one_line(gs, status, message):
    gs.refuse(status, message)
    for check in (partial(Bucket.check_access, writes=writes) for writes in (True, False)):
        with refuses("store gs://bucket/x"):
            check(Bucket("gs://bucket/x"))


def test_the_first_content_that_comes_stays(gs):
    bucket = Bucket("gs://bucket/x", patience=0)
    assert bucket.create("a", b"first")
    assert not bucket.create("a", b"second")
    assert bucket.create("a", b"first"), "an answer was lost, and the request repeated"
    assert bucket.read("a") == b"first"
