"""The input of a report: the content of study.json, which the flows write."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from amazon_electra.beam_jobs.core.errors import UserError, require


class Facts(BaseModel):
    """A part of study.json; a field that nobody reads is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ArmFacts(Facts):
    """The facts about an arm's encoder."""

    name: str
    data_known: bool | None = None
    """Whether the store shows what the encoder was trained on; None for a random encoder."""
    held_out: list[str] | None = None
    """Tasks whose test texts were withheld from pre-training; None where none took place here."""
    origin: str = ""
    """Fingerprint of the published encoder it began with; a key of `ReportInput.origins`."""
    tokens: float | None = None
    matrix_flops: float | None = None
    seconds: float | None = None

    @property
    def is_random(self) -> bool:
        return self.held_out is None and self.data_known is not False


class StageFacts(Facts):
    """A stage of the graph, with what its manifest counts."""

    stage: str
    counts: dict[str, Any] = {}


class CellFacts(Facts):
    """One evaluated fine-tuning; its folders are relative to study.json's."""

    arm: str
    task: str
    seed: int
    evaluation: Path
    finetuned: Path | None = None
    """Fine-tuned folder, where it is not the one that metrics.json names."""
    pretraining_seed: int | None = None
    labels: int = 0
    """Training examples of a point of the label curve; 0: all."""
    cpu_seconds: float = 0
    """CPU seconds of its training and of all its inputs but the corpus; 0: unknown."""


class ReportInput(Facts):
    """The content of study.json."""

    title: str = "Report"
    question: str = ""
    command: str = ""
    """Makes the same report again."""
    store: str = ""
    """Where the models are; empty: where commands look."""
    comparisons: list[tuple[str, str]] = []
    """Pairs of arms; without any the first arm is compared with each of the others."""
    arms: list[ArmFacts] = []
    dump: dict[str, Any] = {}
    synthetic: bool = False
    """Whether the dump is the synthetic sample."""
    stages: list[StageFacts] = []
    origins: dict[str, dict[str, Any]] = {}
    """origin.json of each published encoder, by fingerprint."""
    cells: list[CellFacts] = Field(min_length=1)
    curve: list[CellFacts] = []
    """The same arms trained with fewer labels."""
    reading: str = ""
    """How much of the texts networks read."""
    failures: list[str] = []
    """Lines about arms that failed, with causes and logs."""
    models: list[Path] = []
    """Folders of the models that the best arm of each task became."""

    def write(self, file: Path) -> None:
        file.write_text(self.model_dump_json(indent=1, exclude_defaults=True), encoding="utf-8")


def read_report_input(file: Path) -> ReportInput:
    """Return the content of study.json; UserError names the first field that is wrong."""
    require(file.exists(), "no such file, which a run writes after its evaluations", "study", file)
    try:
        return ReportInput.model_validate_json(file.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "content"
        raise UserError(f"{file}: {place}: {first['msg']}") from None
