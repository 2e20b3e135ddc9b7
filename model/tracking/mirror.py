"""Mirrors a run that was started by hand into MLflow; the flow mirrors those it starts."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from model.presets import Preset
from model.pretraining.loop import Training


@contextmanager
def mirror_to_mlflow(training: Training, preset: Preset) -> Iterator[None]:
    """Mirror the run inside the block to the server MLFLOW_TRACKING_URI names, if it names one."""
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    started_by_flow = os.environ.get("AMAZON_ELECTRA_PROGRESS") == "json"
    if not uri or started_by_flow or not training.device.is_rank0 or find_spec("mlflow") is None:
        yield
        return
    from model.tracking.mlflow_run import Tracking

    parameters = {
        "preset": preset.name,
        **preset.architecture.model_dump(),
        **preset.pretraining.model_dump(),
    }
    tags = {"vocabulary": training.identity["vocabulary"], "shards": training.identity["shards"]}
    tracking = Tracking(uri)
    tracking.start(f"pre-training {preset.name}", parameters, tags)
    status = "FAILED"
    try:
        with tracking.follow_folder("pre-training", training.folder, parameters, tags):
            yield
        status = "FINISHED"
    finally:
        tracking.finish(status)
