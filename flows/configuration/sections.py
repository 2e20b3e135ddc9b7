"""The groups of a form, fields that they share with jobs, and the form as Prefect reads it."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from pydantic import AfterValidator, BaseModel, Field

from beam_jobs.core.settings import Settings, list_bounds

F = TypeVar("F", bound=Callable[..., Any])
MOST_AT_ONCE = 64
"""Jobs that a user may have side by side."""


def make_form_field(kind: type[Settings], name: str, **changes: Any) -> Any:
    """Return the form's field for a setting of a job: its description, bounds and default."""
    field = kind.model_fields[name]
    about = field.description or ""
    words = {"default": field.default, "description": f"{about[:1].upper()}{about[1:]}"}
    return Field(**{**words, **list_bounds(field), **changes})


def make_preset_field(kind: type[Settings], name: str, **changes: Any) -> Any:
    """Return the form's field for a setting that 0 leaves to the preset: a form has no None."""
    field = kind.model_fields[name]
    about = field.description or ""
    words = f"{about[:1].upper()}{about[1:]}; 0: as the preset says"
    made = make_form_field(kind, name, **{"default": 0, "ge": 0, "description": words, **changes})
    made.metadata.append(AfterValidator(partial(_check_least, list_bounds(field).get("ge", 0))))
    return made


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


def _check_least(least: float, number: int) -> int:
    if 0 < number < least:
        raise ValueError(f"write {least} or more, or 0 for what the preset says")
    return number
