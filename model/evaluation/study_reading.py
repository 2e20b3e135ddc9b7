"""Study files read: YAML with variables, changes from the command line, and what is wrong with it in one line."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from model.command import UserMistake
from model.evaluation.study_checks import missing_places, mistakes
from model.evaluation.study_file import Study
from model.finetuning.config import FinetuningSettings

SHIPPED = Path(__file__).parent / "studies"
VARIABLE = re.compile(r"\$\{(\w+)\}")


def read(name_or_file: str, variables: Mapping[str, str], changes: Mapping[str, str] | None = None) -> Study:
    """A shipped study by name or a YAML file; `${name}` in it stands for a variable.

    `changes`: `seeds`, and settings that hold for all arms and tasks that have none of their own, as text.
    """
    file = found(name_or_file)
    return from_text(file.read_text(encoding="utf-8"), str(file), variables, changes)


def from_text(
    text: str,
    where: str,
    variables: Mapping[str, str],
    changes: Mapping[str, str] | None = None,
    option: str = "--var",
) -> Study:
    """As `read`; `where` is what messages call the text, `option` what fills its variables."""
    import yaml

    try:
        content = yaml.safe_load(_filled(text, variables, where, option))
    except yaml.YAMLError as error:
        raise UserMistake(f"{where}: not YAML: {' '.join(str(error).split())}") from error
    if isinstance(content, dict) and changes:
        content = _changed(content, changes)
    return parse(content, where)


def to_text(study: Study) -> str:
    """YAML that reads back as the same study."""
    import yaml

    return yaml.safe_dump(study.model_dump(mode="json", exclude_defaults=True), sort_keys=False, allow_unicode=True)


def found(name_or_file: str) -> Path:
    file = Path(name_or_file).expanduser()
    if not file.is_file():
        file = SHIPPED / f"{name_or_file}.yaml"
    if not file.is_file():
        raise UserMistake(f"{name_or_file}: neither a file nor one of the shipped studies: {', '.join(shipped())}")
    return file.resolve()


def shipped() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def variables_in(text: str) -> list[str]:
    """What a study needs to be told."""
    return sorted(set(VARIABLE.findall(text)))


def _filled(text: str, variables: Mapping[str, str], where: str, option: str) -> str:
    missing = [name for name in variables_in(text) if name not in variables]
    if missing:
        raise UserMistake(f"{where}: give {', '.join(f'{option} {name}=…' for name in missing)}")
    return VARIABLE.sub(lambda match: variables[match.group(1)], text)


def _changed(content: dict[str, Any], changes: Mapping[str, str]) -> dict[str, Any]:
    if not isinstance(content.get("settings", {}), dict | None):
        return content
    settings = dict(content.get("settings") or {})
    for name, text in changes.items():
        if name == "seeds":
            try:
                content = content | {"seeds": [int(part) for part in text.replace(",", " ").split()]}
            except ValueError:
                raise UserMistake(f"seeds={text}: expected whole numbers, such as 0,1,2") from None
        else:
            value = FinetuningSettings.parse(name, text)
            settings[name] = list(value) if isinstance(value, tuple) else value
    return content | {"settings": settings}


def parse(content: Any, where: str) -> Study:
    """From plain dictionaries, with the field named where one is wrong."""
    try:
        study = Study.model_validate(content)
    except ValidationError as error:
        raise UserMistake("; ".join(_told(problem, where) for problem in error.errors()[:3])) from None
    for mistake in mistakes(study):
        raise UserMistake(f"{where}: {mistake}")
    return study


def check_places(study: Study, where: str) -> None:
    """Whatever must be there already is."""
    for mistake in missing_places(study):
        raise UserMistake(f"{where}: {mistake}")


def _told(problem: Any, where: str) -> str:
    """One of pydantic's errors as a line: `FILE: arms[0].speed: no such field`."""
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]).lstrip(".")
    said = "no such field" if problem["type"] == "extra_forbidden" else str(problem["msg"]).lower()
    return f"{where}: {place}: {said}" if place else f"{where}: {said}"
