"""What every form needs: its fields made from settings of jobs, its form in Prefect, and
`--set section.field=value`, with errors of one line.
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, Field

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.settings import (
    Settings,
    build_settings,
    describe_unknown,
    format_value,
    list_bounds,
    parse_assignments,
    parse_text,
)

F = TypeVar("F", bound=Callable[..., Any])


def make_form_field(kind: type[Settings], name: str, **changes: Any) -> Any:
    """Return the form's field for a setting of a job: its description, bounds and default."""
    field = kind.model_fields[name]
    about = field.description or ""
    words = {"default": field.default, "description": f"{about[:1].upper()}{about[1:]}"}
    return Field(**{**words, **list_bounds(field), **changes})


def take_fields(form: type[BaseModel], *names: str) -> Callable[[F], F]:
    """Give a flow the fields of a form (all, or those named, in this order) as its parameters.

    Prefect makes the form in its UI of the signature of a flow; here the model is that signature.
    """
    fields = form.model_fields

    def sign(function: F) -> F:
        parameters = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=fields[name],
                annotation=fields[name].annotation,
            )
            for name in names or fields
        ]
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return function

    return sign


Form = TypeVar("Form", bound=Settings)


def fill_form(form: type[Form], settings: Sequence[str] = (), **given: Any) -> Form:
    """Return a form with the fields given by name and by `section.field=value` texts.

    `recipe` may also be a YAML file with part of the form, which all others come before.
    """
    values: dict[str, Any] = {n: dict(v) if isinstance(v, dict) else v for n, v in given.items()}
    if str(values.get("recipe")).endswith((".yaml", ".yml")):
        written = read_recipe_file(form, str(values.pop("recipe")))
        values = {
            n: {**written[n], **dict(v)} if n in written and isinstance(v, Mapping) else v
            for n, v in (written | values).items()
        }
    for path, text in parse_assignments(settings).items():
        section, _, name = path.partition(".")
        if name:
            _fill_field(form, values, section, name, text)
        else:
            values[section] = text
    return build_settings(form, values)


def read_recipe_file(form: type[Settings], file: str) -> dict[str, Any]:
    """Return what a user's recipe sets: sections of the form, and in them also what `--set` takes,
    such as `learning_rate` of pre-training; its own `recipe` is one of ours.
    """
    try:
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"cannot be read: {' '.join(str(error).split())}", "recipe", file) from None
    if not isinstance(content, dict):
        raise UserError("write sections of the form, such as pretraining:", "recipe", file)
    values: dict[str, Any] = {}
    for section, fields in content.items():
        if isinstance(fields, dict) and section in form.model_fields:
            for name, value in fields.items():
                _fill_field(form, values, section, str(name), value)
        else:
            values[section] = fields
    return values


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
                text = format_value(value) if isinstance(value, str | None) else json.dumps(value)
                texts.append(f"{section}.{name}={text}")
    return texts


def _fill_field(
    form: type[Settings], values: dict[str, Any], section: str, name: str, given: Any
) -> None:
    """Set a field; `pretraining.anything` that is no field of the form is one of the trainer's."""
    path, group = f"{section}.{name}", values.setdefault(section, {})
    fields = form.model_fields.items()
    sections = {n: type(f.default) for n, f in fields if isinstance(f.default, Settings)}
    if section not in sections or not isinstance(group, dict):
        raise UserError(describe_unknown(section, sections, "section"), path, given)
    model = sections[section]
    if path == "finetuning.n_train":
        raise UserError("unknown field; did you mean finetuning.labels?", path, given)
    if name not in model.model_fields:
        if "settings" not in model.model_fields:
            raise UserError(describe_unknown(name, model.model_fields), path, given)
        group.setdefault("settings", {})[name] = format_value(given)
        return
    try:
        hint = model.model_fields[name].annotation
        group[name] = parse_text(hint, given) if isinstance(given, str) else given
    except UserError as mistake:
        raise UserError(mistake.message, path, given) from None
