"""Studies for tests, read as the command and the flow read them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from amazon_electra.flows.configuration.form import Parameters
from amazon_electra.flows.configuration.study_file import StudyChoice
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.studies.study_reading import LoadedStudy, load_study
from amazon_electra.flows.studies.study_stages import StudyStages

SPACE = {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}, "batch": [8, 16]}


def content_of(made: Path, arms: Sequence[Any] = (), **changes: Any) -> dict[str, Any]:
    """Return the content of a study file with one task and, if no others are given, one arm."""
    return {
        "title": "T",
        "question": "Q?",
        "seeds": [0],
        "arms": list(arms) or [{"name": "one", "encoder": str(made / "electra")}],
        "tasks": [{"task": "polarity", "data": str(made / "corpus")}],
    } | changes


def load_content(content: Mapping[str, Any], store: Path, **choice: Any) -> LoadedStudy:
    store.mkdir(parents=True, exist_ok=True)
    file = store / "written.yaml"
    file.write_text(yaml.safe_dump(dict(content)))
    return load_study(Parameters(store=str(store)), StudyChoice(file=str(file), **choice))


def build_stages(content: Mapping[str, Any], store: Path, **choice: Any) -> StudyStages:
    """Return the stages of a study of which nothing is made of a dump."""
    return StudyStages(load_content(content, store, **choice), {}, Store(store))
