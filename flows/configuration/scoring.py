"""What a run of `score` is told."""

from typing import Any

from pydantic import Field

from beam_jobs.core.settings import Settings
from flows.configuration.dump import Dump
from flows.configuration.parameters import STORE
from flows.configuration.sections import make_form_field
from model.config import Precision
from model.options import ScorerOptions

ALIASES = ["champion", "challenger"]
"""Aliases that the form offers; those of the registry come to them when the form is served."""


def offer_aliases(schema: dict[str, Any]) -> None:
    schema["enum"] = list(ALIASES)


class ScoringModel(Settings):
    """Which model of the registry labels the reviews."""

    alias: str = Field(
        default="champion",
        min_length=1,
        description="champion, challenger, or another alias that the registry has when `up` starts",
        json_schema_extra=offer_aliases,
    )
    precision: Precision = make_form_field(ScorerOptions, "precision")
    workers: int = Field(
        default=0, ge=0, le=1024, description="Processes of the Beam job; 0: as many as it takes"
    )


class Scoring(Settings):
    """All of it."""

    model: ScoringModel = ScoringModel()
    dump: Dump = Dump()
    store: str = STORE
