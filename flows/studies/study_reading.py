"""Reads a study once: variables filled, changes applied, everything checked that can be checked
before something is made.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from amazon_electra.beam_jobs.core.errors import UserError, refuse
from amazon_electra.beam_jobs.core.nesting import list_strings, load_yaml
from amazon_electra.beam_jobs.core.settings import list_mistakes, parse_field
from amazon_electra.flows.configuration.form import Parameters
from amazon_electra.flows.configuration.form_tools import list_changes
from amazon_electra.flows.configuration.study_file import Study, StudyChoice
from amazon_electra.flows.studies.study_checks import find_missing_places, validate_study
from amazon_electra.model.config import FinetuningSettings

SHIPPED = Path(__file__).parent / "shipped"
VARIABLE = re.compile(r"\$\{(\w+)\}")
MADE = ("corpus", "shards", "general_shards", "encoder", "origin")
"""What a file names as `${corpus}`: stages make it."""


@dataclass(frozen=True)
class LoadedStudy:
    """A study whose file was read and found right."""

    study: Study
    choice: StudyChoice
    wanted: frozenset[str]
    """The names of MADE in the file."""

    @property
    def reads_dump(self) -> bool:
        """Return whether a stage of the study is made of the dump."""
        return bool(self.wanted - {"origin"})

    @property
    def labelled_tasks(self) -> list[str]:
        """Return the tasks whose examples are the reviews of the dump."""
        return [task.task for task in self.study.tasks if task.data == "${corpus}"]


def load_study(parameters: Parameters, choice: StudyChoice) -> LoadedStudy:
    """Return the study that the form chooses; UserError names the file and the field."""
    name = choice.file
    content = read_yaml(find_study_file(name))
    wanted = list_variables(content)
    if unknown := wanted - {*MADE}:
        raise UserError(f"{name}: ${{{min(unknown)}}} is none of {', '.join(MADE)}")
    if "origin" in wanted and not parameters.pretraining.start_from:
        raise UserError(f"the study {name} adapts a published encoder", "pretraining.start_from")
    study = parse_study(content, name, choice.settings)
    if ("general_shards" in wanted) != bool(choice.general_text):
        text = choice.general_text[0] if choice.general_text else None
        need = "needs none; leave it out" if text else "pre-trains on general text: name its files"
        raise UserError(f"the study {name} {need}", "study.general_text", text)
    check_unread_settings(parameters, name, wanted)
    for missing in find_missing_places(study):
        raise UserError(f"{name}: {missing}")
    return LoadedStudy(study, choice, wanted)


def read_yaml(file: Path) -> Any:
    with refuse(ValueError, message="not valid YAML: {}", field="study.file", value=file):
        return load_yaml(file.read_text(encoding="utf-8"))


def find_study_file(name_or_file: str) -> Path:
    """Return the path of a shipped study or of a file of one's own."""
    for file in (Path(name_or_file).expanduser(), SHIPPED / f"{name_or_file}.yaml"):
        if file.is_file():
            return file.resolve()
    shipped = ", ".join(list_shipped_studies())
    raise UserError(f"no such file, and no shipped study ({shipped})", "study.file", name_or_file)


def list_shipped_studies() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def list_variables(content: Any) -> frozenset[str]:
    """Return the names that the content of a study file holds as `${name}`."""
    return frozenset(name for text in list_strings(content) for name in VARIABLE.findall(text))


def parse_study(content: Any, name: str, changes: Mapping[str, str] | None = None) -> Study:
    """Return the study of plain dictionaries; UserError names the field that is wrong.

    `changes`: `seeds`, `pretraining_seeds`, the `steps` of arms that say them, and settings for all
    arms and tasks that have none of their own, as text.
    """
    try:
        study = Study.model_validate(content)
        if changes:
            study = Study.model_validate(change_study(study, changes, name))
    except ValidationError as error:
        wrong = error.errors()[0]
        place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in wrong["loc"])
        is_extra = wrong["type"] == "extra_forbidden"
        message = "unknown field" if is_extra else list_mistakes(error)[0].message
        raise UserError(f"{name}: {place.lstrip('.')}: {message}") from None
    for mistake in validate_study(study):
        raise UserError(f"{name}: {mistake}")
    return study


def change_study(study: Study, changes: Mapping[str, str], name: str) -> dict[str, Any]:
    """Return the content of a study with settings of the command line or the form."""
    update = study.model_dump()
    for field, text in changes.items():
        if field == "steps":
            own = [arm["pretraining"]["set"] for arm in update["arms"]]
            for one in (one for one in own if "steps" in one):
                one["steps"] = text
        elif field in ("seeds", "pretraining_seeds"):
            why = "expected whole numbers, such as 0,1,2"
            with refuse(ValueError, message=why, field=field, value=text):
                update[field] = [int(part) for part in text.replace(",", " ").split()]
        else:
            value = parse_field(FinetuningSettings, field, text)
            update["settings"][field] = list(value) if isinstance(value, tuple) else value
            if all(field in {**a.settings, **t.settings} for a in study.arms for t in study.tasks):
                raise UserError(f"each arm or task of {name} sets its own value", field, text)
    return update


def check_unread_settings(parameters: Parameters, name: str, wanted: frozenset[str]) -> None:
    """Refuse settings of the graph that no stage of this study reads."""
    read = {"pretraining.device"}
    if wanted:
        read |= {"dump", "corpus", "engine"}
    if wanted & {"shards", "general_shards", "encoder"}:
        read |= {"vocabulary", "shards"}
    if "origin" in wanted:
        read |= {"pretraining.start_from", "pretraining.start_generator_from"}
    if "encoder" in wanted:
        read |= {"pretraining"}
    changes = list_changes(parameters)
    if parameters.recipe != Parameters().recipe and not read & {"vocabulary", "pretraining"}:
        changes["recipe"] = parameters.recipe
    for field, value in changes.items():
        if not {field, field.partition(".")[0]} & read:
            raise UserError(f"no stage of the study {name} reads it; leave it out", field, value)
