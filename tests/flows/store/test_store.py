"""Stage folders: what decides a fingerprint, what makes a stage complete, one maker at a time."""

import hashlib
import json
import threading
import time
from pathlib import Path

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import atomic_path
from amazon_electra.flows.cli.run_commands import build_store
from amazon_electra.flows.configuration.form import Dump
from amazon_electra.flows.stages.dump import build_dump_stage, locate_dump
from amazon_electra.flows.stages.pretraining import Pretraining, TrainingConfig
from amazon_electra.flows.store.stage import ExistingStage, Resources
from amazon_electra.flows.store.store import Store
from tests.flows.fakes import FakeStage
from tests.refusals import refuses


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def corpus():
    return FakeStage("corpus", 1, {"seed": 0}, {"dump": FakeStage("dump", 1, {"files": ["a"]})})


def test_a_fingerprint_follows_what_decides_the_content_and_nothing_else(corpus):
    other_dump = FakeStage("dump", 1, {"files": ["b"]})
    dump = corpus.inputs["dump"]
    others = [
        FakeStage("shards", 1, {"seed": 0}, {"dump": dump}),
        FakeStage("corpus", 2, {"seed": 0}, {"dump": dump}),
        FakeStage("corpus", 1, {"seed": 1}, {"dump": dump}),
        FakeStage("corpus", 1, {"seed": 0}, {"dump": other_dump}),
        FakeStage("corpus", 1, {"seed": 0}, {"texts": dump}),
    ]
    assert len({stage.fingerprint for stage in [corpus, *others]}) == 6
    more = {"title": "the corpus", "labels": {"a": "b"}, "resources": Resources(threads=3)}
    same = FakeStage("corpus", 1, {"seed": 0}, {"dump": dump}, **more)
    known = FakeStage("corpus", 1, {}, known=corpus.fingerprint)
    assert same.fingerprint == known.fingerprint == corpus.fingerprint
    shards = [FakeStage("shards", 1, {}, {"corpus": source}) for source in (corpus, known)]
    assert shards[0].fingerprint == shards[1].fingerprint


def test_a_fingerprint_is_the_same_in_every_version_and_on_every_machine(corpus):
    """Or every store would be made again. SHA-256 of the sorted JSON of name, version, parameters
    and inputs, 16 digits; the order in which parameters are written says nothing.
    """
    dump = hashlib.sha256(
        b'{"inputs": {}, "parameters": {"files": ["a"]}, "stage": "dump", "version": 1}'
    ).hexdigest()[:16]
    identity = (
        f'{{"inputs": {{"dump": "{dump}"}}, "parameters": {{"seed": 0}}, "stage": "corpus", '
        '"version": 1}'
    )
    assert corpus.fingerprint == hashlib.sha256(identity.encode()).hexdigest()[:16]
    one, other = ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert FakeStage("x", 1, one).fingerprint == FakeStage("x", 1, other).fingerprint


def test_a_file_that_is_not_what_the_manifest_lists_is_never_read(store, corpus):
    folder = store.folder(corpus)
    (folder / "part").mkdir(parents=True)
    weights = folder / "part" / "model.safetensors"
    weights.write_bytes(b"weights")
    store.publish(corpus, {})
    assert store.fetch(corpus) == folder
    for damage in (b"weight\0", b"weight", None):
        weights.unlink() if damage is None else weights.write_bytes(damage)
        with refuses("model.safetensors"):
            Store(store.root).fetch(corpus)
        store.fetch(corpus, "other")


def test_a_dump_that_changed_since_it_was_listed_is_not_read(store, tmp_path):
    """While it is read, the job looks (tests/beam_jobs/core/test_storage.py)."""
    path = tmp_path / "reviews.jsonl"
    path.write_text("{}\n")
    dump = build_dump_stage(Dump(paths=[str(path)]), store)
    assert locate_dump(dump, store) == [str(path)]
    path.write_text("[]\n")
    with refuses("reviews.jsonl"):
        locate_dump(dump, store)


@pytest.mark.parametrize("tag", ["../../evilmodel", "/tmp/evilmodel", "a/b", ".."])
def test_a_fingerprint_from_elsewhere_is_no_path(tag):
    with pytest.raises(UserError):
        ExistingStage("finetuning", tag)


def test_a_stage_is_complete_once_its_manifest_is_there(store, corpus):
    folder = store.folder(corpus)
    (folder / "rejects").mkdir(parents=True)
    (folder / "rejects" / "a.jsonl").write_text("{}\n")
    (folder / "log.txt").write_text("words")
    (folder / ".left").mkdir()  # by a process that was killed
    (folder / ".left" / "checkpoint.zip").write_text("half")
    assert store.manifest(corpus) is None
    with atomic_path(folder / "curve.json") as half_written:  # by another thread
        half_written.write_text("{}")
        store.publish(corpus, {"read": 3}, seconds=1.5)
    manifest = store.manifest(corpus)
    assert [(f["path"], f["size"]) for f in manifest["files"]] == [("rejects/a.jsonl", 3)]
    assert manifest["result"] == {"read": 3}
    assert manifest["inputs"]["dump"]["fingerprint"] == corpus.inputs["dump"].fingerprint


def test_what_a_job_continues_from_goes_with_its_last_line(store):
    for settings in ({"keep_checkpoints": "2"}, {}):
        scratch = () if settings else ("checkpoints",)
        settings = {**settings, "seed": str(len(scratch))}
        config = TrainingConfig(recipe="sample", settings=settings)
        stage = Pretraining(config)
        for name in ("model", "checkpoints"):
            (store.folder(stage) / name).mkdir(parents=True)
            (store.folder(stage) / name / "weights").write_text("all")
        listed = [file["path"] for file in store.publish(stage, {})["files"]]
        kept = [] if scratch else ["checkpoints/weights"]
        assert listed == [*kept, "model/weights"]
        left = store.folder(stage).glob("c*/*")
        assert [str(path.relative_to(store.folder(stage))) for path in left] == kept


def test_each_origin_is_in_the_lineage_once_at_its_least_depth(store, corpus):
    """One that was deleted is left out."""
    dump, deleted = corpus.inputs["dump"], FakeStage("vocabulary", 1, {})
    shards = FakeStage("shards", 1, {}, {"corpus": corpus, "dump": dump, "vocabulary": deleted})
    report = FakeStage("report", 1, {}, {"shards": shards})
    for stage in (dump, corpus, shards, report):
        store.publish(stage, {})
    lineage = store.trace_lineage(store.manifest(report))
    depths = [(depth, m["stage"]) for depth, m in lineage]
    assert depths == [(0, "report"), (1, "shards"), (2, "corpus"), (2, "dump")]


def test_two_makers_of_one_stage_take_turns(store, corpus):
    order = []

    def second():
        with store.lock_stage(corpus, lambda: order.append("waiting")):
            order.append("second")

    with store.lock_stage(corpus):
        thread = threading.Thread(target=second)
        thread.start()
        while "waiting" not in order:
            time.sleep(0.01)
        order.append("first")
    thread.join()
    assert order == ["waiting", "first", "second"]


def test_a_digest_is_remembered_until_the_file_changes(store, tmp_path):
    store.check_access()
    dump = tmp_path / "dump.json"
    dump.write_text("one")
    first = store.digest(dump)
    [memory] = (store.root / "digests").iterdir()
    memory.write_text(json.dumps({"sha256": "remembered"}))
    assert store.digest(dump) == "remembered"
    dump.write_text("two!")
    assert store.digest(dump) not in (first, "remembered")


def test_the_store_is_the_one_of_the_environment_where_none_is_given(monkeypatch):
    monkeypatch.delenv("AMAZON_ELECTRA_STORE", raising=False)
    assert build_store(None).address == str(Path("store").absolute())
    monkeypatch.setenv("AMAZON_ELECTRA_STORE", "/data/store")
    assert build_store(None).address == "/data/store"
    assert build_store("other").address == str(Path("other").absolute())


@pytest.mark.parametrize(
    "damage",
    [
        *(b'{"stage": "corp', b"\xff\xfe\x00", b"[{}]", b'{"a":' * 100_000, b"[" * 100_000),
        *({field: None} for field in ("stage", "version", "fingerprint", "title", "finished")),
        *({field: ["x"]} for field in ("parameters", "inputs", "result", "files", "attempt")),
        *({"attempt": path} for path in ("../../../x", "/etc")),
        {"inputs": {"x": {"stage": "..", "fingerprint": "x"}}},
        {"files": [{"path": "a.txt"}]},
        {"files": [{"path": "a.txt", "size": "1", "sha256": 1}]},
        *(
            {"files": [{"path": path, "size": 1, "sha256": "x"}]}
            for path in ("../other", "/etc/passwd", "a/../../b", "", "a//b", ".")
        ),
    ],
)
def test_a_damaged_manifest_is_named_in_one_line(store, corpus, damage):
    shards = FakeStage("shards", 1, {}, {"corpus": corpus})
    for stage in (corpus, shards):
        store.publish(stage, {"kept": 1})
    file = store.folder(corpus) / "manifest.json"
    if isinstance(damage, dict):
        damage = json.dumps(json.loads(file.read_bytes()) | damage).encode()
    file.write_bytes(damage)
    for use in (store.manifest, store.fetch):
        with refuses(f"{corpus.path}/manifest.json"):
            use(corpus)
    assert [m["stage"] for m in store.list_manifests()] == ["shards"], "nothing else suffers"
    file.unlink()
    store.publish(corpus, {"kept": 2})
    assert store.manifest(corpus)["result"] == {"kept": 2}
