"""Who may read a store."""

from amazon_electra.flows.cli import main
from amazon_electra.flows.servers import access


def test_nobody_else_reads_a_store(tmp_path):
    store = tmp_path / "parent" / "own"
    access.restrict_store(store)
    (store / "logs").mkdir()
    (store / "logs" / "up.log").write_text("a line")
    modes = {
        ("folder" if p.is_dir() else "file", p.stat().st_mode & 0o777) for p in store.rglob("*")
    }
    assert modes == {("folder", 0o700), ("file", 0o600)}


def test_a_store_that_cannot_be_made(capsys):
    assert main.run_words(["up", "--store", "/proc/foo"]) == 2
    assert "--store /proc/foo" in capsys.readouterr().err
