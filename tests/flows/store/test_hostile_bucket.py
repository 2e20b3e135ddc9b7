"""A bucket that somebody else may write to: what lies there is data, and stays below the store's
own folder on this machine. What cannot be used is one line.
"""

import json

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.cli import main
from amazon_electra.flows.store.stage import ExistingStage
from amazon_electra.flows.store.store import Store

CORPUS = ExistingStage("corpus", 1, {"seed": 0})
HOME = f"bucket/store/corpus/{CORPUS.fingerprint}"
pytestmark = pytest.mark.parametrize("address", ["gs"], indirect=True)


@pytest.fixture
def objects(address, gs):
    """The bucket's objects, by BUCKET/NAME."""
    return gs.objects


def make(store):
    """Make a stage of one small file."""
    with store.lock_stage(CORPUS) as folder:
        (folder / "a.txt").write_text("a")
        return store.publish(CORPUS, {})


def list_files(folder):
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "listed",
    [
        b"{",
        b"[1]",
        b'{"a":' * 100_000,
        {"../evil": ""},
        {"../../../evil": ""},
        {"part/./evil": ""},
        {"/etc/evil": ""},
        {"part.txt": 5},
    ],
)
def test_a_list_of_checkpoints_leads_out_of_no_folder(open_host, objects, tmp_path, listed):
    content = listed if isinstance(listed, bytes) else json.dumps(listed).encode()
    objects[f"{HOME}/partial.json"] = content
    for name in ("part.txt", "../evil", "../../../evil", "part/./evil", "/etc/evil"):
        objects[f"{HOME}/partial/{name}"] = b"evil"
    there = open_host("there")
    make(there)
    assert not [path for path in list_files(tmp_path) if path.name == "evil"]
    assert (open_host("reader").fetch(CORPUS) / "a.txt").read_text() == "a"


@pytest.mark.parametrize(
    "change",
    [
        b"{",
        b"[]",
        b'{"a":' * 100_000,
        {"attempt": "../../../x"},
        {"attempt": "/etc"},
        {"attempt": 5},
        {"attempt": None},
        {"files": 7},
        {"files": [5]},
        {"files": [{"path": "/etc/passwd", "size": 1, "sha256": "0"}]},
        {"files": [{"path": "a.txt"}]},
        {"files": [{"path": "a.txt", "size": "1", "sha256": 1}]},
        {"inputs": {"dump": {"stage": "..", "fingerprint": ".."}}},
        {"inputs": [1]},
        {"finished": 7},
    ],
)
def test_a_replaced_manifest_is_one_line(open_host, objects, change, tmp_path, monkeypatch, capsys):
    """Nobody makes the stage beside a manifest that nobody can read: it can only be removed."""
    here = open_host("here")
    manifest = dict(make(here))
    replaced = change if isinstance(change, bytes) else json.dumps({**manifest, **change}).encode()
    objects[f"{HOME}/manifest.json"] = replaced
    there = open_host("there")
    uses = [there.locate, there.fetch, *([] if there.manifest(CORPUS) else [lambda _: make(there)])]
    for use in uses:
        with pytest.raises(UserError) as refused:
            use(CORPUS)
        assert "manifest.json" in str(refused.value)
        assert "\n" not in str(refused.value)
    monkeypatch.setenv("AMAZON_ELECTRA_STATE", str(tmp_path / "state"))
    for words in (["runs"], ["prune"]):
        given = main.build_parser().parse_args([*words, "--store", "gs://bucket/store"])
        assert main.attempt(given) in (0, 1, 2)
    capsys.readouterr()


def test_files_of_a_manifest_that_stand_in_each_others_way_are_one_line(open_host, objects):
    here = open_host("here")
    manifest = make(here)
    start, [file] = f"{HOME}/{manifest['attempt']}", manifest["files"]
    objects[f"{start}/a.txt/b.txt"] = b"a"
    changed = {**manifest, "files": [file, {**file, "path": "a.txt/b.txt"}]}
    objects[f"{HOME}/manifest.json"] = json.dumps(changed).encode()
    with pytest.raises(UserError):
        open_host("there").fetch(CORPUS)


def test_prune_removes_nothing_beside_the_stores_part_of_this_machine(
    open_host, objects, tmp_path, monkeypatch
):
    monkeypatch.setenv("AMAZON_ELECTRA_STATE", str(tmp_path / "state"))
    Store("gs://bucket/store").root.mkdir(parents=True)
    beside = tmp_path / "state" / "0123456789abcdef"
    beside.mkdir()
    make(open_host("here"))
    for name in ("../0123456789abcdef/x/y", f"{tmp_path}/state/0123456789abcdef/x"):
        objects[f"bucket/store/{name}"] = b"x"
    words = ["prune", "--yes", "--store", "gs://bucket/store"]
    assert main.attempt(main.build_parser().parse_args(words)) == 0
    assert beside.exists()
