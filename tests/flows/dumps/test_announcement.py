"""`amazon-electra announce`: the server hears of a dump, or the user of a mistake."""

import pytest

from flows.cli import main
from flows.servers.settings import DUMP_EVENT
from tests.patience import eventually


def announce(*words):
    return main.attempt(main.build_parser().parse_args(["announce", *map(str, words)]))


def read_announced():
    """The dumps that events at the server name."""
    from prefect.client.orchestration import get_client

    wanted = {"filter": {"event": {"name": [DUMP_EVENT]}}}
    with get_client(sync_client=True) as client:
        events = client._client.post("/events/filter", json=wanted).json()["events"]
    return [event["payload"]["dump"] for event in events]


def test_the_server_hears_of_the_dump(prefect_home, tmp_path, monkeypatch, capsys):
    (tmp_path / "new.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert announce("new.json", "--store", prefect_home) == 0
    assert announce("s3://bucket/new.json", "--store", prefect_home) == 0
    assert f"the watcher looks for {tmp_path}/new.json" in capsys.readouterr().out
    eventually(
        lambda: {str(tmp_path / "new.json"), "s3://bucket/new.json"} <= set(read_announced())
    )


@pytest.mark.parametrize(
    ("name", "mistake"),
    [("new.json", "no server is up that could hear of"), ("gone.json", "gone.json: no such file")],
)
def test_what_cannot_be_announced_is_told(tmp_path, monkeypatch, capsys, name, mistake):
    (tmp_path / "new.json").write_text("{}")
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    assert announce(tmp_path / name, "--store", tmp_path / "store") == 2
    assert mistake in capsys.readouterr().err
