"""What a run tells while a stage is made, also while the Prefect server does not answer."""

import socket
import time
from uuid import uuid4

from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from amazon_electra.flows.ui.artifacts import PrefectRun
from tests.flows.fakes import FakeStage


def test_progress_is_posted_aside_and_may_be_lost():
    """Whoever follows a job goes on at once, and one post waits, not one for each report."""
    stage, shown = FakeStage("corpus", 1, {}), PrefectRun()
    report = {"description": "", "done": 1, "total": 2, "unit": "units", "rate": 1.0}
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/api"
        with temporary_settings({PREFECT_API_URL: url, PREFECT_CLIENT_MAX_RETRIES: 0}):
            posters = []
            for _ in range(2):
                shown._artifacts[stage.fingerprint] = (uuid4(), time.monotonic() - 60)
                shown.on_progress(stage, {**report, "seconds_left": 1})
                posters.append(shown._poster)
        assert posters[0] is posters[1]
        assert posters[0].is_alive()
