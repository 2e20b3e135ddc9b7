"""What a run tells while a stage is made, also while the Prefect server does not answer."""

import socket
import time
from uuid import uuid4

import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from amazon_electra.flows.stages.corpus import Corpus
from amazon_electra.flows.stages.finetuning import Finetuned
from amazon_electra.flows.stages.pretraining import Pretraining
from amazon_electra.flows.store.stage import ExistingStage
from amazon_electra.flows.ui.artifacts import PrefectRun, describe_hours


@pytest.mark.parametrize(
    ("kind", "done", "left", "told"),
    [
        (Finetuned, 12, 27_000, "about 7.5 hours left of 5,600 steps; `--finetuning.labels 2000`"),
        (Pretraining, 12, 7_200, "about 2.0 hours left of 5,600 steps; `--pretraining.steps`"),
        (Finetuned, 9, 27_000, ""),
        (Finetuned, 12, 3_000, ""),
        (Finetuned, 12, None, ""),
        (Corpus, 12, 27_000, ""),
    ],
)
def test_a_training_of_hours_is_told_after_ten_steps(kind, done, left, told):
    progress = {"done": done, "total": 5_600, "unit": "steps", "seconds_left": left}
    found = describe_hours(kind.shorter, progress)
    assert found.startswith(told)
    assert bool(found) == bool(told)


def test_progress_is_posted_aside_and_may_be_lost():
    """Whoever follows a job goes on at once, and one post waits, not one for each report."""
    stage, shown = ExistingStage("corpus", 1, {}), PrefectRun()
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
