"""The report of a study: a report with the study's file beside it."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.settings import Settings
from amazon_electra.flows.stages.report import Report
from amazon_electra.flows.store.store import Store


class StudyConfig(Settings):
    """What decides the report of a study besides the evaluations."""

    study: dict[str, Any]


@dataclass(frozen=True)
class StudyReport(Report):
    """Evaluated cells of a study → report.md, report.html, report.json and study.yaml."""

    file: Path | None = None
    """The study as its author wrote it."""

    name, version, Config = "study", 19, StudyConfig

    def prepare(self, store: Store, folder: Path) -> None:
        super().prepare(store, folder)
        if self.file:
            shutil.copyfile(self.file, folder / "study.yaml")
