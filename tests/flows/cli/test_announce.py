"""`amazon-electra announce`: the watcher hears of a dump, or the user of a mistake."""

from contextlib import suppress

import pytest
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound

from amazon_electra.flows.cli import main
from amazon_electra.flows.cli.server_commands import WATCHER


def announce(*words):
    return main.attempt(main.build_parser().parse_args(["announce", *map(str, words)]))


def read_announced():
    """The dumps that runs of the watcher are told of."""
    with get_client(sync_client=True) as client:
        return {run.parameters.get("announced") for run in client.read_flow_runs(limit=200)}


def test_the_watcher_hears_of_the_dump(prefect_home, tmp_path, monkeypatch, capsys):
    from amazon_electra.flows.watch import watch_dumps

    (tmp_path / "new.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    with get_client(sync_client=True) as client, suppress(ObjectNotFound):
        client.delete_deployment(client.read_deployment_by_name(WATCHER).id)
    assert announce("new.json", "--store", prefect_home) == 2
    assert f"has no deployment {WATCHER}" in capsys.readouterr().err
    watch_dumps.to_deployment(name=watch_dumps.name).apply()
    assert announce("new.json", "--store", prefect_home) == 0
    assert announce("s3://bucket/new.json", "--store", prefect_home) == 0
    assert f"the watcher looks for {tmp_path}/new.json" in capsys.readouterr().out
    assert {str(tmp_path / "new.json"), "s3://bucket/new.json"} <= read_announced()


@pytest.mark.parametrize(
    ("name", "mistake"),
    [("new.json", "no server is up to announce"), ("gone.json", "gone.json: no such file")],
)
def test_what_cannot_be_announced_is_told(tmp_path, monkeypatch, capsys, name, mistake):
    (tmp_path / "new.json").write_text("{}")
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    assert announce(tmp_path / name, "--store", tmp_path / "store") == 2
    assert mistake in capsys.readouterr().err
