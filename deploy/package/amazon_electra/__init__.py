"""The Python API: what a notebook imports (docs/python.md).

    import amazon_electra as ae

    made = ae.run("shop.csv")
    ae.score("new.csv", "scores", model=made.model)

Each name is imported when it is first used: torch, Beam and Prefect take seconds.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amazon_electra.beam_jobs.config import CorpusConfig as CorpusConfig
    from amazon_electra.beam_jobs.config import ScoringConfig as ScoringConfig
    from amazon_electra.beam_jobs.config import ShardsConfig as ShardsConfig
    from amazon_electra.beam_jobs.core.errors import JobFailed as JobFailed
    from amazon_electra.beam_jobs.core.errors import TransientError as TransientError
    from amazon_electra.beam_jobs.core.errors import UserError as UserError
    from amazon_electra.beam_jobs.core.results import CorpusResult as CorpusResult
    from amazon_electra.beam_jobs.core.results import ShardsResult as ShardsResult
    from amazon_electra.beam_jobs.corpus_job import make_corpus as make_corpus
    from amazon_electra.beam_jobs.model_folder.drift import Profile as Profile
    from amazon_electra.beam_jobs.model_folder.drift import compare_texts as compare_texts
    from amazon_electra.beam_jobs.scoring.explanation import explain as explain
    from amazon_electra.beam_jobs.scoring.suggestion import suggest as suggest
    from amazon_electra.beam_jobs.shards_job import make_shards as make_shards
    from amazon_electra.flows.api.commands import RunResult as RunResult
    from amazon_electra.flows.api.commands import ScoreResult as ScoreResult
    from amazon_electra.flows.api.commands import run as run
    from amazon_electra.flows.api.commands import score as score
    from amazon_electra.model.config import ContrastiveConfig as ContrastiveConfig
    from amazon_electra.model.config import PretrainConfig as PretrainConfig
    from amazon_electra.model.config import TrainingResources as TrainingResources
    from amazon_electra.model.config import VocabularyConfig as VocabularyConfig
    from amazon_electra.model.contrastive import adapt_contrastively as adapt_contrastively
    from amazon_electra.model.evaluate import evaluate as evaluate
    from amazon_electra.model.export import ExportCell as ExportCell
    from amazon_electra.model.export import export as export
    from amazon_electra.model.finetune import finetune as finetune
    from amazon_electra.model.finetuning.config import FinetuneConfig as FinetuneConfig
    from amazon_electra.model.finetuning.search import search as search
    from amazon_electra.model.pretrain import pretrain as pretrain
    from amazon_electra.model.questions.giveaways import find_giveaway as find_giveaway
    from amazon_electra.model.questions.slices import find_slices as find_slices
    from amazon_electra.model.questions.trust import choose_threshold as choose_threshold
    from amazon_electra.model.questions.wrong_labels import find_wrong_labels as find_wrong_labels
    from amazon_electra.model.report.inputs import CellFacts as CellFacts
    from amazon_electra.model.report.inputs import ReportInput as ReportInput
    from amazon_electra.model.report.report import ReportResult as ReportResult
    from amazon_electra.model.report.report import write_report as write_report
    from amazon_electra.model.results import EvaluationResult as EvaluationResult
    from amazon_electra.model.results import ExportResult as ExportResult
    from amazon_electra.model.results import FinetuneResult as FinetuneResult
    from amazon_electra.model.results import PretrainResult as PretrainResult
    from amazon_electra.model.results import SearchResult as SearchResult
    from amazon_electra.model.results import VocabularyResult as VocabularyResult
    from amazon_electra.model.vocabulary import train_vocabulary as train_vocabulary

MODULES = {
    "amazon_electra.beam_jobs.config": ("CorpusConfig", "ScoringConfig", "ShardsConfig"),
    "amazon_electra.beam_jobs.core.errors": ("JobFailed", "TransientError", "UserError"),
    "amazon_electra.beam_jobs.core.results": ("CorpusResult", "ShardsResult"),
    "amazon_electra.beam_jobs.corpus_job": ("make_corpus",),
    "amazon_electra.beam_jobs.shards_job": ("make_shards",),
    "amazon_electra.flows.api.commands": ("RunResult", "ScoreResult", "run", "score"),
    "amazon_electra.model.contrastive": ("adapt_contrastively",),
    "amazon_electra.model.evaluate": ("evaluate",),
    "amazon_electra.model.export": ("ExportCell", "export"),
    "amazon_electra.model.finetune": ("finetune",),
    "amazon_electra.model.finetuning.config": ("FinetuneConfig",),
    "amazon_electra.model.finetuning.search": ("search",),
    "amazon_electra.model.config": (
        "ContrastiveConfig",
        "PretrainConfig",
        "TrainingResources",
        "VocabularyConfig",
    ),
    "amazon_electra.model.pretrain": ("pretrain",),
    "amazon_electra.model.report.inputs": ("CellFacts", "ReportInput"),
    "amazon_electra.model.report.report": ("ReportResult", "write_report"),
    "amazon_electra.beam_jobs.model_folder.drift": ("Profile", "compare_texts"),
    "amazon_electra.beam_jobs.scoring.explanation": ("explain",),
    "amazon_electra.beam_jobs.scoring.suggestion": ("suggest",),
    "amazon_electra.model.questions.giveaways": ("find_giveaway",),
    "amazon_electra.model.questions.slices": ("find_slices",),
    "amazon_electra.model.questions.trust": ("choose_threshold",),
    "amazon_electra.model.questions.wrong_labels": ("find_wrong_labels",),
    "amazon_electra.model.results": (
        "EvaluationResult",
        "ExportResult",
        "FinetuneResult",
        "PretrainResult",
        "SearchResult",
        "VocabularyResult",
    ),
    "amazon_electra.model.vocabulary": ("train_vocabulary",),
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
