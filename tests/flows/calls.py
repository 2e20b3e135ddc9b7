"""What a stage gives to the function that makes it."""

import inspect
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from amazon_electra.flows.store.stage import Stage, read_request, write_request
from amazon_electra.flows.store.store import Store

FUNCTIONS = {
    "corpus": "amazon_electra.beam_jobs.corpus_job.make_corpus",
    "shards": "amazon_electra.beam_jobs.shards_job.make_shards",
    "vocabulary": "amazon_electra.model.vocabulary.train_vocabulary",
    "origin": "amazon_electra.model.origin.load_origin",
    "pretraining": "amazon_electra.model.pretrain.pretrain",
    "contrastive-adaptation": "amazon_electra.model.contrastive.adapt_contrastively",
    "finetuning": "amazon_electra.model.finetune.finetune",
    "scores": "amazon_electra.beam_jobs.scoring_job.score",
}


@dataclass
class EmptyResult(dict[str, Any]):
    """Of a function that is not called: as a dictionary and as a data class."""

    @property
    def content(self) -> dict[str, Any]:
        return self


def cross(stage: Stage) -> Stage:
    """The stage as another process reads it."""
    return read_request(write_request(stage), stage.path)


def call_of(stage: Stage, store: Store, folder: Path | None = None) -> dict[str, Any]:
    """The arguments by name that a stage, read by another process, gives to its function."""
    module, _, name = FUNCTIONS[stage.name].rpartition(".")
    function = getattr(import_module(module), name)
    calls: list[dict[str, Any]] = []

    def record(*given: Any, **named: Any) -> dict[str, Any]:
        bound = inspect.signature(function).bind(*given, **named)
        bound.apply_defaults()
        calls.append(dict(bound.arguments))
        return EmptyResult()

    with patch(FUNCTIONS[stage.name], record):
        result = cross(stage).run(store, folder or store.folder(stage))
    return calls[0] | {"result": result}
