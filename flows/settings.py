"""`--set section.field=value`: a form filled in from the command line; what is wrong is told in one line."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from beam_jobs.command import UserMistake
from flows.addresses import SECRET
from flows.parameters import Addition, Increment, Parameters, Pretraining, Section

Form = TypeVar("Form", Parameters, Addition)


def from_settings(settings: Sequence[str] = (), **given: Any) -> Parameters:
    """Parameters of a whole run; see `filled`."""
    return filled(Parameters, settings, **given)


def filled(form: type[Form], settings: Sequence[str] = (), **given: Any) -> Form:
    """A form from `--set section.field=value` texts and fields known by name; a mistake names the field."""
    values: dict[str, Any] = {name: dict(v) if isinstance(v, dict) else v for name, v in given.items()}
    for setting in settings:
        path, equals, text = setting.partition("=")
        section, _, name = path.partition(".")
        if not equals:
            raise UserMistake(f"--set {setting}: write --set section.field=value")
        if not name:
            values[section] = text
        else:
            _set(form, values, section, name, text)
    return validated(form, values)


def validated(form: type[Form], values: Mapping[str, Any]) -> Form:
    """What is wrong with it is told in one line."""
    try:
        return form.model_validate(values)
    except ValidationError as invalid:
        raise UserMistake(_in_one_line(invalid)) from None


def settings_of(form: Section) -> list[str]:
    """`section.field=value` for every field of a section that is not its default; `filled` reads them back."""
    found = []
    for section, described in type(form).model_fields.items():
        chosen, default = getattr(form, section), described.default
        for name in type(chosen).model_fields if isinstance(chosen, Section) else ():
            value = getattr(chosen, name)
            if value == getattr(default, name):
                continue
            texts = {f"{section}.{key}": text for key, text in value.items()} if isinstance(value, dict) else {}
            texts = texts or {f"{section}.{name}": value if isinstance(value, str) else json.dumps(value)}
            found += [f"{field}={text}" for field, text in texts.items()]
    return found


def _set(form: type[Section], values: dict[str, Any], section: str, name: str, text: str) -> None:
    """`pretraining.anything` that is no field of the form is a setting of the trainer's."""
    model = form.model_fields[section].annotation if section in form.model_fields else None
    group = values.setdefault(section, {})
    if not isinstance(group, dict) or not isinstance(model, type) or not issubclass(model, Section):
        known = sorted(n for n, f in form.model_fields.items() if isinstance(f.annotation, type))
        raise UserMistake(f"--set {section}.{name}: no such section; there are {', '.join(known)}")
    if name not in model.model_fields and model in (Pretraining, Increment):
        group.setdefault("settings", {})[name] = text
    else:
        group[name] = _read(model, section, name, text)


def _read(model: type[Section], section: str, name: str, text: str) -> Any:
    """Lists may be written a,b,c; everything else is left to pydantic, which reads numbers and booleans from text."""
    if name not in model.model_fields:
        raise UserMistake(f"--set {section}.{name}: no such field; there are {', '.join(model.model_fields)}")
    if text.startswith(("[", "{")):
        try:
            return json.loads(text)
        except ValueError as wrong:
            raise UserMistake(f"--set {section}.{name}={text}: not valid JSON: {wrong}") from None
    is_list = "list" in str(model.model_fields[name].annotation)
    return [part.strip() for part in text.split(",") if part.strip()] if is_list else text


def _in_one_line(invalid: ValidationError) -> str:
    """Every wrong field with what was given and what is expected."""
    lines = []
    for error in invalid.errors():
        where = ".".join(str(part) for part in error["loc"])
        message = error["msg"].removeprefix("Value error, ")
        given = "" if error["type"] == SECRET else f" (given: {error['input']!r})"
        lines.append(f"{where}: {message}{given}" if where else message)
    return "; ".join(lines)
