"""What a user sets: pydantic models. Each field is an option of a command line (`max_length`:
`--max-length`), a key of a YAML file and a field of the form in the Prefect UI.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    LiteralString,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, model_validator
from pydantic.fields import FieldInfo

from amazon_electra.beam_jobs.core.errors import UserError, format_value, require

Model = TypeVar("Model", bound="Settings")

MAX_SEED = 2**32 - 1
BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
SECRET: LiteralString = "secret"  # type of a pydantic error whose input is not to be shown


class Settings(BaseModel):
    """What can be set of one thing. An unknown name is an error, not a silent typo."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )

    others: "ClassVar[tuple[type[Settings], ...]]" = ()
    """Models whose fields may be given too; the field `settings` keeps them, as text."""

    @model_validator(mode="before")
    @classmethod
    def _read_values(cls, values: Any) -> Any:
        """Take "", which forms send, for None where that is the default; move `others`."""
        if not isinstance(values, dict):
            return values
        fields = cls.model_fields
        is_none = {n for n, v in values.items() if v == "" and n in fields}
        values = {
            n: v for n, v in values.items() if n not in is_none or fields[n].default is not None
        }
        known = {name for kind in cls.others for name in kind.model_fields} - fields.keys()
        if moved := {n: format_value(values.pop(n)) for n in known & values.keys()}:
            values["settings"] = {**values.get("settings", {}), **moved}
        return values

    def replace(self, **changes: Any) -> Self:
        return type(self)(**{**dict(self), **changes})

    def pick(self, kind: "type[Settings]") -> dict[str, Any]:
        """Return those of the settings that another model has too, by name."""
        return {n: getattr(self, n) for n in kind.model_fields if n in type(self).model_fields}

    def narrow(self, kind: "type[Model]") -> "Model":
        """Return a model with those of the settings that it has: the config of a job's options."""
        return kind(**self.pick(kind))


def strip_none(hint: Any) -> Any:
    """Return X of `X | None`, and any other type as it is."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    return next(kind for kind in get_args(hint) if kind is not NoneType)


def parse_text(hint: Any, text: str) -> Any:
    """Return what pydantic makes a value of: None, the parts of `a,b,c`, or the text."""
    kind = strip_none(hint)
    if kind is not hint and text.lower() == "none":
        return None
    is_list = get_origin(kind) in (tuple, list)
    return [part.strip() for part in text.split(",") if part.strip()] if is_list else text


def list_valid(known: Iterable[str], what: str = "field") -> str:
    return f"unknown {what}; valid: {', '.join(known)}"


def list_mistakes(invalid: ValidationError) -> list[UserError]:
    """Return what is wrong with each wrong field of a model."""
    mistakes = []
    for error in invalid.errors():
        path = [str(part) for part in error["loc"]]
        cause, value = error.get("ctx", {}).get("error"), error["input"]
        has_field = isinstance(cause, UserError) and cause.field
        while path and path[-1].isdecimal() and not has_field:  # an item of a list
            path.pop()
        message = str(error["msg"]).removeprefix("Value error, ").replace("Input should", "must", 1)
        message = message.partition(", unable to parse")[0].replace("Field required", "is missing")
        if isinstance(cause, UserError):
            message, value = cause.message, cause.value or value
            path += [cause.field] if cause.field and path[-1:] != [cause.field] else []
        is_shown = error["type"] != SECRET and not isinstance(value, dict | BaseModel)
        mistakes.append(UserError(message, ".".join(path), value if is_shown else None))
    return mistakes


def join_mistakes(invalid: ValidationError) -> UserError:
    """Return one error, of one line, that names every wrong field."""
    mistakes = list_mistakes(invalid)
    return mistakes[0] if len(mistakes) == 1 else UserError("; ".join(map(str, mistakes)))


def parse_field(kind: type[Settings], name: str, text: str) -> Any:
    require(name in kind.model_fields, list_valid(kind.model_fields), name, text)
    field = kind.model_fields[name]
    hint: Any = Annotated[field.annotation, field]
    adapter: TypeAdapter[Any] = TypeAdapter(hint, config=ConfigDict(allow_inf_nan=False))
    try:
        return adapter.validate_python(parse_text(field.annotation, text))
    except ValidationError as invalid:
        raise UserError(list_mistakes(invalid)[0].message, name, text) from None


def replace_settings(
    models: Sequence[Settings], texts: Mapping[str, str], section: str
) -> list[Any]:
    """Return the models with the fields that the texts name, as `field` or `section.field`."""
    known = {name: i for i, model in enumerate(models) for name in type(model).model_fields}
    changes: list[dict[str, Any]] = [{} for _ in models]
    for path, text in texts.items():
        name = path.removeprefix(f"{section}.")
        sections = f", and the section here is {section}" if "." in name else ""
        require(name in known, list_valid(known) + sections, path, text)
        changes[known[name]][name] = parse_field(type(models[known[name]]), name, text)
    try:
        return [model.replace(**change) for model, change in zip(models, changes, strict=True)]
    except ValidationError as invalid:  # of several fields together
        raise join_mistakes(invalid) from None


def build_settings(kind: type[Model], values: Mapping[str, Any]) -> Model:
    """Return the settings with these values; a UserError names every wrong field in one line."""
    try:
        return kind.model_validate(values)
    except ValidationError as invalid:
        raise join_mistakes(invalid) from None


def list_bounds(field: FieldInfo) -> dict[str, float]:
    """Return the bounds of a field: `ge`, `gt`, `le`, `lt` → number."""
    return {
        bound: getattr(rule, bound)
        for rule in field.metadata
        for bound in BOUNDS
        if hasattr(rule, bound)
    }
