"""The process of a server, before it serves."""

import gc
import sys

import uvicorn

from flows.servers import server_start


def test_garbage_is_looked_for_again_when_it_serves_but_not_among_what_was_imported(monkeypatch):
    found = {}

    def serve(words):
        found.update(words=words, enabled=gc.isenabled(), frozen=gc.get_freeze_count())

    monkeypatch.setattr(uvicorn, "main", serve)
    monkeypatch.setattr(sys, "argv", ["server_start.py", "prefect", "--port", "4200"])
    try:
        server_start.main()
    finally:
        gc.unfreeze()
    application = ["--factory", "flows.servers.prefect_application:create_app"]
    assert found["words"] == [*application, "--port", "4200"]
    assert found["enabled"]
    assert found["frozen"] > 100_000
