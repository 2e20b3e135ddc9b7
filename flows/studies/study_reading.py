"""Reads a study once: variables filled, changes applied, everything checked that can be checked
before something is made.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from amazon_electra.beam_jobs.core.errors import UserError, name_setting
from amazon_electra.beam_jobs.core.nesting import list_strings
from amazon_electra.beam_jobs.core.settings import list_mistakes, parse_field
from amazon_electra.flows.configuration.form import Parameters
from amazon_electra.flows.configuration.form_tools import list_changes
from amazon_electra.flows.configuration.study_file import Study, StudyChoice
from amazon_electra.flows.studies.study_checks import find_missing_places, validate_study
from amazon_electra.model.config import FinetuningSettings
from amazon_electra.model.yaml_text import load_yaml

SHIPPED = Path(__file__).parent / "shipped"
VARIABLE = re.compile(r"\$\{(\w+)\}")
STEPS = 2_000
"""Of pre-training where the study's encoders ask for ${steps} and nobody says."""
MADE = ("corpus", "shards", "general_shards", "encoder", "origin")
"""Variables that stages of the graph fill; `general_shards` needs general text, `origin` a
published encoder.
"""
GENERAL = "<general_shards>"


@dataclass(frozen=True)
class LoadedStudy:
    """A study whose file was read and found right."""

    study: Study
    """Folders that stages make are written `<name>`."""
    choice: StudyChoice
    wanted: frozenset[str]
    """The variables that stages have to fill."""
    left_out: Mapping[str, str]
    """Arm, or `task` and its name → why it is no part of the study."""

    @property
    def reads_dump(self) -> bool:
        """Return whether a stage of the study is made of the dump."""
        return bool(self.wanted - {"origin"})

    @property
    def labelled_tasks(self) -> list[str]:
        """Return the tasks whose examples are the reviews of the dump."""
        return [task.task for task in self.study.tasks if task.data == "<corpus>"]


def load_study(parameters: Parameters, choice: StudyChoice) -> LoadedStudy:
    """Return the study that the form chooses; UserError names the file and the field."""
    name = choice.file
    try:
        content = read_yaml(find_study_file(name))
    except UserError as mistake:
        raise UserError(str(mistake), "study.file") from None
    variables = list_variables(content)
    for given in choice.variables:
        if given not in variables:
            known = ", ".join(variables) or "none"
            raise UserError(f"{name} has no variable {given!r}; it has {known}")
    wanted = frozenset(set(variables) & set(MADE) - choice.variables.keys())
    if "origin" in choice.variables:
        raise UserError(
            f"{name}: set `origin` with "
            f"{name_setting('pretraining.start_from', choice.variables['origin'])}"
        )
    if "origin" in wanted and not parameters.pretraining.start_from:
        raise UserError(f"{name} adapts a published encoder: give `pretraining.start_from`")
    steps = str(parameters.pretraining.steps or STEPS)
    values = {"steps": steps, **{v: f"<{v}>" for v in wanted}, **choice.variables}
    content, no_tasks = drop_optional_tasks(content, values)
    content = fill_variables(content, values, name)
    study = parse_study(content, name, choice.settings)
    if choice.general_text and "general_shards" not in wanted:
        raise UserError(
            f"no arm of the study {name} pre-trains on general text; leave it out",
            "study.general_text",
            choice.general_text[0],
        )
    left_out = {} if choice.general_text else find_arms_without_text(study)
    if left_out:
        study = drop_arms(study, left_out, name)
        wanted = frozenset(wanted - {"general_shards"})
    check_unread_settings(parameters, name, wanted, "steps" in variables)
    for missing in find_missing_places(study):
        raise UserError(f"{name}: {missing}")
    return LoadedStudy(study, choice, wanted, {**left_out, **no_tasks})


def read_yaml(file: Path) -> Any:
    try:
        return load_yaml(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file}: not valid YAML: {error}") from error


def find_study_file(name_or_file: str) -> Path:
    """Return the path of a shipped study or of a file of one's own."""
    file = Path(name_or_file).expanduser()
    if not file.is_file():
        file = SHIPPED / f"{name_or_file}.yaml"
    if not file.is_file():
        shipped = ", ".join(list_shipped_studies())
        raise UserError(f"{name_or_file}: neither a file nor one of the shipped studies: {shipped}")
    return file.resolve()


def list_shipped_studies() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def list_variables(content: Any) -> list[str]:
    """Return the names that the content of a study file holds as `${name}`."""
    return sorted({name for text in list_strings(content) for name in VARIABLE.findall(text)})


def drop_optional_tasks(content: Any, given: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
    """Return the content without the optional tasks whose variables nobody gave, and why each of
    them is left out.
    """
    kept, left_out = [], {}
    tasks = content.get("tasks") if isinstance(content, dict) else None
    for task in tasks if isinstance(tasks, list) else []:
        is_optional = isinstance(task, dict) and task.get("optional") is True
        missing = [name for name in list_variables(task) if name not in given]
        if is_optional and missing:
            named = f"task {task.get('title') or task.get('task')}"
            left_out[named] = f"its data is not set ({missing[0]}=…)"
        else:
            kept.append(task)
    return ({**content, "tasks": kept} if left_out else content), left_out


def fill_variables(content: Any, values: Mapping[str, str], name: str) -> Any:
    """Return the content with each `${name}` replaced; UserError names those nobody gave."""
    if missing := [variable for variable in list_variables(content) if variable not in values]:
        raise UserError(
            f"{name}: give {', '.join(f'`study.variables.{variable}`' for variable in missing)}"
        )

    def fill(part: Any) -> Any:
        if isinstance(part, str):
            return VARIABLE.sub(lambda match: values[match.group(1)], part)
        if isinstance(part, dict):
            return {key: fill(value) for key, value in part.items()}
        return [fill(value) for value in part] if isinstance(part, list | tuple) else part

    return fill(content)


def parse_study(content: Any, name: str, changes: Mapping[str, str] | None = None) -> Study:
    """Return the study of plain dictionaries; UserError names the field that is wrong.

    `changes`: `seeds`, `pretraining_seeds`, and settings for all arms and tasks that have none of
    their own, as text.
    """
    try:
        study = Study.model_validate(content)
    except ValidationError as error:
        problems = []
        for problem, wrong in list(zip(error.errors(), list_mistakes(error), strict=True))[:3]:
            place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in problem["loc"])
            is_extra = problem["type"] == "extra_forbidden"
            message = "unknown field" if is_extra else wrong.message
            problems.append(": ".join(filter(None, [name, place.lstrip("."), message])))
        raise UserError("; ".join(problems)) from None
    if changes:
        study = change_study(study, changes, name)
    for mistake in validate_study(study):
        raise UserError(f"{name}: {mistake}")
    return study


def change_study(study: Study, changes: Mapping[str, str], name: str) -> Study:
    """Return the study with seeds and settings of the command line or the form."""
    update: dict[str, Any] = {}
    settings = dict(study.settings)
    for field, text in changes.items():
        if field in ("seeds", "pretraining_seeds"):
            try:
                update[field] = [int(part) for part in text.replace(",", " ").split()]
            except ValueError:
                raise UserError("expected whole numbers, such as 0,1,2", field, text) from None
            continue
        value = parse_field(FinetuningSettings, field, text)
        settings[field] = list(value) if isinstance(value, tuple) else value
        is_read = any(
            field not in arm.settings and field not in task.settings
            for arm in study.arms
            for task in study.tasks
        )
        if not is_read:
            raise UserError(
                f"{name}: {name_setting(field, text)} changes nothing: "
                "every arm or task of the study sets its own value"
            )
    return Study.model_validate({**study.model_dump(), **update, "settings": settings})


def find_arms_without_text(study: Study) -> dict[str, str]:
    """Return the arms that need general text, and those that need these, with the reason."""
    why = "it pre-trains on general text, and none was given (`study.general_text`)"
    missing = {arm.name: why for arm in study.arms if arm.pretraining.shards == GENERAL}
    while True:
        more = {
            arm.name: f"it needs the arm {other}"
            for arm in study.arms
            for other in (
                *(arm.taught_by, arm.shaped_by),
                *(arm.pretraining.same_flops_as, arm.pretraining.same_tokens_as),
            )
            if arm.name not in missing and other in missing
        }
        if not more:
            return missing
        missing |= more


def drop_arms(study: Study, left_out: Mapping[str, str], name: str) -> Study:
    """Return the study without arms, and without the comparisons that name them."""
    arms = [arm for arm in study.arms if arm.name not in left_out]
    if not arms:
        raise UserError(f"{name} pre-trains on general text alone: give `study.general_text`")
    kept = [pair for pair in study.comparisons if left_out.keys().isdisjoint(pair)]
    return study.model_copy(update={"arms": arms, "comparisons": kept})


def check_unread_settings(
    parameters: Parameters, name: str, wanted: frozenset[str], has_steps: bool
) -> None:
    """Refuse settings of the graph that no stage of this study reads."""
    read = {"pretraining.device", "engine.placement", "engine.training_pool"}
    if has_steps:
        read |= {"pretraining.steps"}
    if wanted:
        read |= {"dump", "corpus", "engine"}
    if wanted & {"shards", "general_shards", "encoder"}:
        read |= {"vocabulary", "shards"}
    if "origin" in wanted:
        read |= {"pretraining.start_from", "pretraining.start_generator_from"}
    if "encoder" in wanted:
        read |= {"pretraining"}
    if parameters.recipe != Parameters().recipe and not read & {"vocabulary", "pretraining"}:
        raise UserError(
            f"no stage of the study {name} reads it; leave it out", "recipe", parameters.recipe
        )
    for setting in list_changes(parameters):
        field = setting.partition("=")[0]
        if not {field, field.partition(".")[0]} & read:
            own = "; its arms say their own pre-training" if field.startswith("pretraining") else ""
            raise UserError(
                f"no stage of the study {name} reads {field}{own}; leave it out",
                *setting.split("=", 1),
            )
