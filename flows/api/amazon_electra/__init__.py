"""The Python API: what a notebook imports (docs/python.md).

    import amazon_electra as ae

    made = ae.run("shop.csv")
    ae.score("new.csv", "scores", model=made.model)

Each name is imported when it is first used: torch, Beam and Prefect take seconds.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beam_jobs.config import CorpusConfig as CorpusConfig
    from beam_jobs.config import ScoringConfig as ScoringConfig
    from beam_jobs.config import ShardsConfig as ShardsConfig
    from beam_jobs.core.errors import JobFailed as JobFailed
    from beam_jobs.core.errors import TransientError as TransientError
    from beam_jobs.core.errors import UserError as UserError
    from beam_jobs.corpus_job import make_corpus as make_corpus
    from beam_jobs.shards_job import make_shards as make_shards
    from flows.api.commands import RunResult as RunResult
    from flows.api.commands import ScoreResult as ScoreResult
    from flows.api.commands import run as run
    from flows.api.commands import score as score
    from model.contrastive import adapt_contrastively as adapt_contrastively
    from model.evaluate import evaluate as evaluate
    from model.export import ExportCell as ExportCell
    from model.export import export as export
    from model.finetune import finetune as finetune
    from model.finetuning.request import FinetuneConfig as FinetuneConfig
    from model.finetuning.search import search as search
    from model.options import ContrastiveConfig as ContrastiveConfig
    from model.options import PretrainConfig as PretrainConfig
    from model.options import TrainingResources as TrainingResources
    from model.options import VocabularyConfig as VocabularyConfig
    from model.pretrain import pretrain as pretrain
    from model.report.inputs import CellFacts as CellFacts
    from model.report.inputs import ReportInput as ReportInput
    from model.report.report import write_report as write_report
    from model.vocabulary import train_vocabulary as train_vocabulary

MODULES = {
    "beam_jobs.config": ("CorpusConfig", "ScoringConfig", "ShardsConfig"),
    "beam_jobs.core.errors": ("JobFailed", "TransientError", "UserError"),
    "beam_jobs.corpus_job": ("make_corpus",),
    "beam_jobs.shards_job": ("make_shards",),
    "flows.api.commands": ("RunResult", "ScoreResult", "run", "score"),
    "model.contrastive": ("adapt_contrastively",),
    "model.evaluate": ("evaluate",),
    "model.export": ("ExportCell", "export"),
    "model.finetune": ("finetune",),
    "model.finetuning.request": ("FinetuneConfig",),
    "model.finetuning.search": ("search",),
    "model.options": (
        "ContrastiveConfig",
        "PretrainConfig",
        "TrainingResources",
        "VocabularyConfig",
    ),
    "model.pretrain": ("pretrain",),
    "model.report.inputs": ("CellFacts", "ReportInput"),
    "model.report.report": ("write_report",),
    "model.vocabulary": ("train_vocabulary",),
}
"""The names of the API by module."""
HOMES = {name: module for module, names in MODULES.items() for name in names}
__all__ = sorted(HOMES)


if not TYPE_CHECKING:  # which would take every name for one of ours

    def __getattr__(name: str) -> Any:
        if name not in HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(importlib.import_module(HOMES[name]), name)
        return found


def __dir__() -> list[str]:
    return __all__
