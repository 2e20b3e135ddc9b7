"""A run started by hand mirrors itself into MLflow where MLFLOW_TRACKING_URI says so; one started by the flow is
mirrored by the flow."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec

from model.presets import Preset
from model.pretraining.loop import Training


@contextmanager
def tracked(training: Training, preset: Preset) -> Iterator[None]:
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    started_by_flow = os.environ.get("AMAZON_ELECTRA_PROGRESS") == "json"
    if not uri or started_by_flow or not training.device.is_first or find_spec("mlflow") is None:
        yield
        return
    from model.tracking import Tracking

    parameters = {"preset": preset.name, **asdict(preset.architecture), **asdict(preset.pretraining)}
    tags = {"vocabulary": training.identity["vocabulary"], "shards": training.identity["shards"]}
    tracking = Tracking(uri)
    tracking.start(f"pre-training {preset.name}", parameters, tags)
    status = "FAILED"
    try:
        with tracking.following("pre-training", training.folder, parameters, tags):
            yield
        status = "FINISHED"
    finally:
        tracking.finish(status)
