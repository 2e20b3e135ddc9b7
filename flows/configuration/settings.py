"""`--set section.field=value`: a form filled in from the command line, mistakes in one line."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from beam_jobs.core.errors import UserError
from beam_jobs.core.settings import (
    Settings,
    describe_unknown,
    format_mistakes,
    parse_assignments,
    parse_text,
)
from flows.configuration.parameters import Increment, Parameters, Pretraining

Form = TypeVar("Form", bound=Settings)


def fill_parameters(settings: Sequence[str] = (), **given: Any) -> Parameters:
    """Return the parameters of a whole run; see `fill_form`."""
    return fill_form(Parameters, settings, **given)


def fill_form(form: type[Form], settings: Sequence[str] = (), **given: Any) -> Form:
    """Return a form with the fields given by name and by `section.field=value` texts."""
    values: dict[str, Any] = {n: dict(v) if isinstance(v, dict) else v for n, v in given.items()}
    for path, text in parse_assignments("--set", settings, "--set section.field=value").items():
        section, _, name = path.partition(".")
        if name:
            _fill_field(form, values, section, name, text)
        else:
            values[section] = text
    return validate_form(form, values)


def validate_form(form: type[Form], values: Mapping[str, Any]) -> Form:
    """Return the form with these values; a UserError says in one line what is wrong with them."""
    try:
        return form.model_validate(values)
    except ValidationError as invalid:
        raise UserError(format_mistakes(invalid)) from None


def list_changes(form: Settings) -> list[str]:
    """Return `section.field=value` for every field of a section that is not its default.

    `fill_form` reads them back.
    """
    texts = []
    for section, field in type(form).model_fields.items():
        chosen, default = getattr(form, section), field.default
        for name in type(chosen).model_fields if isinstance(chosen, Settings) else ():
            value = getattr(chosen, name)
            if value == getattr(default, name):
                continue
            if isinstance(value, dict):
                texts += [f"{section}.{key}={text}" for key, text in value.items()]
            else:
                text = value if isinstance(value, str) else json.dumps(value)
                texts.append(f"{section}.{name}={text}")
    return texts


def _fill_field(
    form: type[Settings], values: dict[str, Any], section: str, name: str, text: str
) -> None:
    """Set a field; `pretraining.anything` that is no field of the form is one of the trainer's."""
    path, group = f"--set {section}.{name}", values.setdefault(section, {})
    sections = list_sections(form)
    if section not in sections or not isinstance(group, dict):
        raise UserError(f"{path}: {describe_unknown(section, sections, 'section')}")
    model = sections[section]
    if name not in model.model_fields:
        if model not in (Pretraining, Increment):
            raise UserError(f"{path}: {describe_unknown(name, model.model_fields)}")
        group.setdefault("settings", {})[name] = text
        return
    try:
        group[name] = parse_text(model.model_fields[name].annotation, text)
    except UserError as mistake:
        raise UserError(f"{path}={text}: {mistake}") from None


def list_sections(form: type[Settings]) -> dict[str, type[Settings]]:
    """Return the sections of a form by their names."""
    fields = {name: field.annotation for name, field in form.model_fields.items()}
    return {
        n: kind
        for n, kind in fields.items()
        if isinstance(kind, type) and issubclass(kind, Settings)
    }
