"""A store in gs://: what test_remote_place.py shows of s3://, in its basics, and its errors."""

import pytest

from tests.flows.store.test_remote_place import CORPUS, call, lose_host, make, write
from tests.patience import eventually

START = f"corpus/{CORPUS.fingerprint}"


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("AMAZON_ELECTRA_STATE", str(tmp_path / "state"))


def test_what_one_host_makes_another_reads(open_gs_host, gs):
    here, there = open_gs_host("here"), open_gs_host("there")
    here.place.check_access()
    assert gs.list_names("bucket/store") == []
    assert there.manifest(CORPUS) is None
    manifest = make(here)
    assert there.manifest(CORPUS) == manifest
    assert (there.fetch(CORPUS) / "part" / "b.txt").read_text() == "b" * 500
    files = f"{START}/{manifest['attempt']}"
    names = [f"{files}/a.txt", f"{files}/part/b.txt", f"{START}/manifest.json"]
    assert gs.list_names("bucket/store") == names
    assert [m["fingerprint"] for m in there.list_manifests()] == [CORPUS.fingerprint]


def test_another_host_continues_from_what_was_uploaded(open_gs_host, gs):
    here, there = open_gs_host("here"), open_gs_host("there")
    held = here.lock_stage(CORPUS)
    folder = held.__enter__()
    write(folder / "checkpoints/step-2/state", "two")
    eventually(lambda: any("checkpoints/step-2/state" in n for n in gs.list_names("bucket/store")))
    lose_host(here)
    with there.lock_stage(CORPUS) as found:
        assert (found / "checkpoints/step-2/state").read_text() == "two"
        manifest = there.publish(CORPUS, {})
    assert here.publish(CORPUS, {}) == manifest, "it came too late: what the other made counts"


def test_the_first_content_that_comes_stays(open_gs_host, gs):
    bucket = open_gs_host("here").place._bucket
    assert bucket.create("a", b"first")
    assert not bucket.create("a", b"second")
    assert bucket.create("a", b"first"), "an answer was lost, and the request repeated"
    assert gs.objects["bucket/store/a"] == b"first"


def read_only_line(capsys):
    """Return what was printed as an error, which is one line."""
    [error] = capsys.readouterr().err.splitlines()
    return error


def test_a_server_that_is_away_is_told_so(gs, capsys):
    gs.refuse(502, "")
    assert call("run", "--dump", "sample:50", "--store", "gs://bucket/store") == 75
    assert "the server cannot be reached" in read_only_line(capsys)


def test_a_bucket_that_is_not_there_is_told_so(gs, capsys):
    gs.buckets = {"other"}
    assert call("run", "--dump", "sample:50", "--store", "gs://bucket/store") == 2
    assert "no such bucket" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "message", "code", "words"),
    [
        (403, "x does not have storage.objects.get access", 2, "storage.objects.get access"),
        (502, "", 75, "cannot be reached"),
    ],
)
def test_what_keeps_us_from_a_dump_in_a_bucket_is_one_line(
    gs, tmp_path, capsys, status, message, code, words
):
    gs.refuse(status, message)
    assert call("run", "--dump", "gs://bucket/x.json", "--store", str(tmp_path / "s")) == code
    assert words in read_only_line(capsys)
