"""What every form needs: fields of jobs, Prefect's form, values of a file or a call."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import Field

from amazon_electra.beam_jobs.core.errors import UserError, format_value, listed, refuse
from amazon_electra.beam_jobs.core.settings import Settings, build_settings, list_bounds

CLOSED = ("corpus", "vocabulary", "shards", "pretraining", "engine")
"""Sections that a shop seldom sets."""
F = TypeVar("F", bound=Callable[..., Any])
Form = TypeVar("Form", bound=Settings)


def make_form_field(kind: type[Settings], name: str) -> Any:
    """Return the form's field for a setting of a job: its description, bounds and default."""
    field = kind.model_fields[name]
    about = " ".join((field.description or "").split())
    bounds: dict[str, Any] = dict(list_bounds(field))
    return Field(default=field.default, description=f"{about[:1].upper()}{about[1:]}", **bounds)


def take_fields(form: type[Settings], *names: str) -> Callable[[F], F]:
    """Give a flow the fields of a form (all, or those named, in this order) as its parameters, of
    which Prefect makes the form in its UI. A section of `CLOSED` may be None: it is a button there.
    """

    def sign(function: F) -> F:
        parameters = []
        for name in names or form.model_fields:
            field: Any = form.model_fields[name]
            kind: Any = field.annotation
            if name in CLOSED:
                field, kind = Field(default=None, description=inspect.getdoc(kind)), kind | None
            keyword = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(name, keyword, default=field, annotation=kind))
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return function

    return sign


def fill_form(form: type[Form], **given: Any) -> Form:
    """Return a form with the fields given, of a section some. `recipe` may also be a YAML file with
    part of the form, which all others come before.
    """
    written: Any = {}
    if str(file := given.get("recipe")).endswith((".yaml", ".yml")):
        del given["recipe"]
        kinds = OSError, ValueError, yaml.YAMLError
        with refuse(*kinds, message="cannot be read: {}", field="recipe", value=file):
            written = yaml.safe_load(Path(str(file)).read_text(encoding="utf-8"))
        if not isinstance(written, dict):
            raise UserError("write sections of the form, such as pretraining:", "recipe", file)
    for name, value in given.items():
        is_section = isinstance(value, Mapping) and isinstance(written.get(name), dict)
        written[name] = {**written[name], **value} if is_section else value
    return build_settings(form, written)


def write_options(values: Mapping[str, Any]) -> list[str]:
    """Return the words by which a command line sets fields, by path."""
    words = []
    for path, value in values.items():
        words += [f"--{path.replace('_', '-')}", *map(format_value, listed(value))]
    return words
