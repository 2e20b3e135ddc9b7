"""A store in a bucket: complete stages only, checked copies, the first of several makers."""

import json
import threading

import pytest
from fsspec.core import url_to_fs

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.cli import main
from amazon_electra.flows.configuration.engine import Engine
from amazon_electra.flows.configuration.form import fill_parameters
from amazon_electra.flows.store.stage import ExistingStage, Resources, dict_of
from amazon_electra.flows.store.store import Store
from tests.flows.calls import call_of
from tests.flows.made import plan_stages
from tests.patience import eventually

CORPUS = ExistingStage("corpus", 1, {"seed": 0})
SHARDS = ExistingStage("shards", 1, {}, {"corpus": CORPUS})
FLINK = Engine(kind="flink", job_endpoint="localhost:8099", flink_master="localhost:8081")


class Trained(ExistingStage):
    """A stage with checkpoints."""

    scratch = ("checkpoints",)


PRETRAINING = Trained("pretraining", 1, {"seed": 0})
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


@ON_BOTH
def test_another_host_continues_from_the_newest_checkpoint(open_host):
    """The first one is lost: its folder stays as it was."""
    here, there = open_host("here"), open_host("there")
    first = here.lock_stage(PRETRAINING)
    folder = first.__enter__()
    write(folder / "metrics.jsonl", "1\n")
    write(folder / "checkpoints/step-1/state", "one")
    write(folder / "checkpoints/writing-step-2/state", "half")
    eventually(lambda: any(name.endswith("partial.json") for name in list_objects(here)))
    write(folder / "metrics.jsonl", "1\n2\n")
    write(folder / "checkpoints/step-2/state", "two")
    (folder / "checkpoints/step-1/state").unlink()
    eventually(lambda: not any("step-1/state" in name for name in list_objects(here)))
    assert there.manifest(PRETRAINING) is None
    with there.lock_stage(PRETRAINING) as found:
        assert (found / "checkpoints/step-2/state").read_text() == "two"
        assert (found / "metrics.jsonl").read_text() == "1\n2\n"
        assert not (found / "checkpoints/writing-step-2").exists()
        write(found / "a.txt", "a")
        manifest = there.publish(PRETRAINING, {})
    start = PRETRAINING.path
    files = f"{start}/{manifest['attempt']}"
    names = [f"{files}/a.txt", f"{files}/metrics.jsonl", f"{start}/manifest.json"]
    assert list_objects(there) == names
    first.__exit__(None, None, None)
    assert list_objects(there) == names, "who comes back uploads nothing more"


def test_a_damaged_checkpoint_is_not_continued_from(open_host):
    here, there = open_host("here"), open_host("there")
    with here.lock_stage(PRETRAINING) as folder:
        write(folder / "checkpoints/step-1/state", "one")
    [at] = [name for name in list_objects(here) if name.endswith("/state")]
    reach(here).pipe_file(f"{here.address}/{at}", b"two")
    with there.lock_stage(PRETRAINING) as found:
        assert not (found / "checkpoints").exists()


@ON_BOTH
def test_of_two_makers_the_first_wins(open_host):
    late, first, reader = map(open_host, ("late", "first", "reader"))
    with late.lock_stage(CORPUS) as folder:
        write(folder / "a.txt", "late")
        write(folder / "b.txt", "of its own")
        with first.lock_stage(CORPUS) as found:
            write(found / "a.txt", "whole")
            manifest = first.publish(CORPUS, {"kept": 1})
        before = list_objects(first)
        assert late.publish(CORPUS, {"kept": 2}) == manifest
    assert list_objects(first) == before
    for store in (late, first, reader):
        assert (store.fetch(CORPUS) / "a.txt").read_text() == "whole"
        assert store.manifest(CORPUS) == manifest


def call(*words):
    """The exit code of a command of ours."""
    return main.attempt(main.build_parser().parse_args(words))


def test_a_host_that_comes_back_goes_on_with_what_it_has(open_host):
    """What was not uploaded yet is not lost with the process."""
    with open_host("here").lock_stage(SHARDS) as folder:
        write(folder / "a.txt", "last word")
    with open_host("here").lock_stage(SHARDS) as folder:
        assert (folder / "a.txt").read_text() == "last word"


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


def test_several_hosts_publish_at_once(open_host):
    stores, gate = [open_host(str(n)) for n in range(3)], threading.Barrier(3)

    def want(store):
        with store.lock_stage(CORPUS) as folder:
            write(folder / "a.txt", store.root.name)
            gate.wait()
            store.publish(CORPUS, {})

    threads = [threading.Thread(target=want, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({(store.fetch(CORPUS) / "a.txt").read_text() for store in stores}) == 1
    assert len(list_objects(stores[0])) == 2


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
    begun = Trained("corpus", 1, {"seed": 1})
    with here.lock_stage(begun) as folder:  # its job fails
        write(folder / "checkpoints/step-1/state", "a" * 2000)

    def run(*words, code=0):
        assert call(*words, "--store", address) == code
        return capsys.readouterr().out

    assert report.fingerprint in run("runs")
    assert "kept 1" in run("show", CORPUS.fingerprint)
    assert begun.fingerprint in run("prune")
    assert any(begun.fingerprint in name for name in list_objects(here)), "a dry run"
    run("prune", "--yes")
    left = list_objects(here)
    assert not any(begun.fingerprint in name for name in left)
    assert any(CORPUS.fingerprint in name for name in left)
