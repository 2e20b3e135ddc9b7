"""The log of failures lies in the store, however that was written."""

from types import SimpleNamespace

from flows.runner.logs import log_failure

STATE = SimpleNamespace(name="Crashed", message="Flow run encountered an exception: it was\nkilled")


def run(store):
    return SimpleNamespace(id="1", name="sample · tiny", parameters={"store": store})


def test_a_store_below_the_home_folder_is_found_there(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    log_failure(None, run("~/store"), STATE)
    [line] = (tmp_path / "store" / "logs" / "failures.log").read_text().splitlines()
    assert line.endswith("  sample · tiny (1): Crashed: it was killed")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_store_that_is_none_gets_no_log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log_failure(None, run("ftp://bucket/store"), STATE)
    assert list(tmp_path.iterdir()) == []
