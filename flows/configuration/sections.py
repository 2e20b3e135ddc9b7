"""The groups of a form, their fields as the jobs declare them, and the form as Prefect reads it."""

import dataclasses
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from beam_jobs.job.settings import describe_unmet_needs, list_settings

F = TypeVar("F", bound=Callable[..., Any])
MOST_AT_ONCE = 64
"""Jobs that a user may have side by side."""


class Section(BaseModel):
    """A group of the form; an unknown field is an error, not a silent typo."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True
    )

    @model_validator(mode="after")
    def _check_needs(self) -> Self:
        """Refuse what was changed and nothing reads: `needs` names the fields that decide it."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        for name, field in type(self).model_fields.items():
            extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
            needs: Any = extra.get("needs", {})
            if needs and values[name] != field.default:
                for mistake in describe_unmet_needs(name, needs, values):
                    raise ValueError(mistake)
        return self


def make_form_field(config: type, name: str, **changes: Any) -> Any:
    """Return the form's field for a setting of a job: its description, bounds and default."""
    _, setting = list_settings(config)[name]
    [field] = [field for field in dataclasses.fields(config) if field.name == name]
    bounds = {bound: getattr(setting, bound) for bound in ("ge", "gt", "le", "lt")}
    words = {"default": field.default, "description": setting.help[0].upper() + setting.help[1:]}
    return Field(**{**words, **bounds, **changes})


def make_preset_field(config: type, name: str, **changes: Any) -> Any:
    """Return the form's field for a setting that 0 leaves to the preset: a form has no None."""
    _, setting = list_settings(config)[name]
    about = f"{setting.help[0].upper()}{setting.help[1:]}; 0: as the preset says"
    field = make_form_field(
        config, name, **{"default": 0, "ge": 0, "description": about, **changes}
    )
    field.metadata.append(AfterValidator(partial(_check_least, setting.ge or 0)))
    return field


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
