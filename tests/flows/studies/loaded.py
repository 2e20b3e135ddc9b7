"""Studies for tests, read as the command and the flow read them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from amazon_electra.flows.configuration.form import StudyChoice, StudyForm
from amazon_electra.flows.stages.finetuning import Finetuned
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.studies.study_file import load_study
from amazon_electra.flows.studies.study_stages import build_cells

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


def write_form(content: Mapping[str, Any], store: Path, **choice: Any) -> StudyForm:
    store.mkdir(parents=True, exist_ok=True)
    file = store / "written.yaml"
    file.write_text(yaml.safe_dump(dict(content)))
    return StudyForm(store=str(store), study=StudyChoice(file=str(file), **choice))


def build(
    content: Mapping[str, Any], store: Path, sources: Mapping[str, Stage] = {}, **choice: Any
) -> list[Finetuned]:
    """Return the cells of a study of which nothing is made of a dump."""
    study = load_study(write_form(content, store, **choice))
    return build_cells(study, sources, Store(store), "auto")
