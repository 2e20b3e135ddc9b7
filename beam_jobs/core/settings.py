"""What a user sets: pydantic models, read from a command line, `--set` texts, files and forms.

    class Packing(Settings):
        max_length: int = Field(128, ge=16, le=65_535, description="tokens of a sequence")

The same field is the option `--max-length` of a job, `--set max_length=…`, a key of a study file
and a field of the form in the Prefect UI. The command line is argparse's: pydantic-settings takes
no option with several values (`--input *.json`), and tyro prints a mistake as a box, not a line.
"""

import argparse
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    LiteralString,
    NoReturn,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, model_validator
from pydantic.fields import FieldInfo

from amazon_electra.beam_jobs.core.errors import UserError, spell_settings
from amazon_electra.beam_jobs.core.files import check_name
from amazon_electra.beam_jobs.core.nesting import load_json

Model = TypeVar("Model", bound="Settings")

MAX_SEED = 2**32 - 1
METAVARS = {int: "N", float: "X", bool: "BOOL", str: "TEXT", Path: "PATH"}
BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
SET = "--set"  # option of a job for a field that is a dictionary of settings
BEAM_OPTIONS = ("runner", "job_endpoint", "flink_master")  # options of Beam that messages name
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

    @model_validator(mode="before")
    @classmethod
    def _read_empty_as_none(cls, values: Any) -> Any:
        """Take an empty text, which a form sends, for None where that is the default."""
        if not isinstance(values, dict):
            return values
        fields = cls.model_fields
        is_none = {n for n, v in values.items() if v == "" and n in fields}
        return {
            n: v for n, v in values.items() if n not in is_none or fields[n].default is not None
        }

    def replace(self, **changes: Any) -> Self:
        """Return the same settings with some changed, checked anew."""
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


def format_value(value: Any) -> str:
    """Return a value as `--set` takes it."""
    if isinstance(value, list | tuple):
        return ",".join(map(format_value, value))
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


def parse_text(hint: Any, text: str) -> Any:
    """Return what pydantic is to make a value of this type from: None, the parts of `a,b,c` for a
    list, JSON, or the text itself.
    """
    kind = strip_none(hint)
    if kind is not hint and text.lower() in (("none",) if kind is str else ("none", "all")):
        return None
    if text.startswith(("[", "{")):
        try:
            return load_json(text)
        except ValueError as error:
            raise UserError(f"not valid JSON: {error}") from None
    if get_origin(kind) in (tuple, list):
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def describe_unknown(name: str, known: Iterable[str], what: str = "field") -> str:
    """Return that a name is unknown, which are valid, and the one that was probably meant."""
    known = list(known)
    close = get_close_matches(name, known, 1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"unknown {what}; valid: {', '.join(known)}{hint}"


def parse_assignments(texts: Sequence[str]) -> dict[str, str]:
    """Return name → value of an option that may be repeated, each time as NAME=VALUE."""
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"{text}: not of the form NAME=VALUE")
        values[name] = value
    return values


def list_mistakes(invalid: ValidationError) -> list[UserError]:
    """Return what is wrong with each wrong field."""
    mistakes = []
    for error in invalid.errors():
        path = [str(part) for part in error["loc"]]
        while path and path[-1].isdecimal():  # an item of a list
            path.pop()
        cause, value = error.get("ctx", {}).get("error"), error["input"]
        message = str(error["msg"]).removeprefix("Value error, ").replace("Input should", "must", 1)
        message = message.partition(", unable to parse")[0]
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
    """Return the value of one field from its text."""
    if name not in kind.model_fields:
        raise UserError(describe_unknown(name, kind.model_fields), name, text)
    field = kind.model_fields[name]
    try:
        hint: Any = Annotated[field.annotation, field]
        adapter: TypeAdapter[Any] = TypeAdapter(hint, config=ConfigDict(allow_inf_nan=False))
        return adapter.validate_python(parse_text(field.annotation, text))
    except ValidationError as invalid:
        raise UserError(list_mistakes(invalid)[0].message, name, text) from None
    except UserError as mistake:
        raise UserError(mistake.message, name, text) from None


def replace_settings(
    models: Sequence[Settings], texts: Mapping[str, str], section: str
) -> list[Any]:
    """Return the models with the fields that the texts name, as `field` or `section.field`."""
    known = {name: i for i, model in enumerate(models) for name in type(model).model_fields}
    changes: list[dict[str, Any]] = [{} for _ in models]
    for path, text in texts.items():
        name = path.removeprefix(f"{section}.")
        if name not in known:
            sections = f", and the section here is {section}" if "." in name else ""
            raise UserError(f"{describe_unknown(name, known)}{sections}", path, text)
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


Spell = Callable[[str, Any], str | None]


def spell_as_option(option: str, value: Any = None) -> str:
    """Return an option as a shell takes it, with its value if there is one."""
    if value is None:
        return option
    values = value if isinstance(value, list | tuple) else [value]
    text = shlex.join(map(format_value, values))
    return f"{option}={text}" if text.startswith("-") else f"{option} {text}"


def make_option_speller(kind: type[Settings]) -> Spell:
    """Return how a job's command line spells its settings: options, or `--set` where it has it."""

    def spell(name: str, value: Any) -> str | None:
        if name in kind.model_fields:
            return spell_as_option(_name_option(name), value)
        if name in BEAM_OPTIONS:
            return spell_as_option(f"--{name}", value)
        if "settings" in kind.model_fields and value is not None:
            return spell_as_option(SET, f"{name}={format_value(value)}")
        return None

    return spell


class OptionParser(argparse.ArgumentParser):
    """argparse that raises mistakes as UserErrors and names the option that was probably meant."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.known: list[str] = []
        self.shortcuts: dict[str, str] = {}  # option by the path of the form's field that it fills
        super().__init__(*args, **{"allow_abbrev": False, **options})

    def add_argument(self, *names: Any, **options: Any) -> Any:
        self.known += [name for name in names if name.startswith("--")]
        return super().add_argument(*names, **options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        for word in sys.argv[1:] if args is None else args:
            check_name(word)
        return super().parse_known_args(args, namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        values, unknown = self.parse_known_args(args, namespace)
        if unknown:
            name = unknown[0].partition("=")[0]
            known = getattr(values, "parser", self).known  # of the command that was chosen
            raise UserError(f"{name}: {describe_unknown(name, known, 'option')}")
        return values

    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def read_options(
    kind: type[Model], argv: Sequence[str] | None, program: str, description: str | None
) -> Model:
    """Return the options of a command line; UserError where it has others."""
    parser = build_parser(kind, program, description)
    return _fill(kind, parser.parse_args(_spell_options(kind, argv)))


def read_known_options(
    kind: type[Model], argv: Sequence[str] | None, program: str, description: str
) -> tuple[Model, list[str]]:
    """Return the options of a command line, and what it has besides."""
    parser = build_parser(kind, program, description)
    values, rest = parser.parse_known_args(_spell_options(kind, argv))
    return _fill(kind, values), rest


def build_parser(kind: type[Settings], program: str, description: str | None) -> OptionParser:
    """Return a parser with an option for every field of a model."""
    parser = OptionParser(prog=program, description=description)
    for name, field in kind.model_fields.items():
        items, plain = list_items(field.annotation), strip_none(field.annotation)
        is_dict = get_origin(plain) is dict
        words: dict[str, Any] = {"default": argparse.SUPPRESS, "help": describe_field(kind, field)}
        if items is not None or is_dict:
            words |= {"nargs": "*", "action": "extend"}
        if plain is bool:  # the option alone says yes
            words |= {"nargs": "?", "const": "true"}
        choices = "{" + ",".join(map(str, get_args(plain))) + "}"
        metavar = METAVARS.get(items or plain, choices)
        words["metavar"] = "NAME=VALUE" if is_dict else metavar
        names = [SET if is_dict else _name_option(name)]
        if (
            items is not None and name.endswith("s") and name[:-1] not in kind.model_fields
        ):  # one at a time: --label A --label B
            names.append(_name_option(name[:-1]))
        parser.add_argument(*names, dest=name, required=field.is_required(), **words)
    return parser


def list_items(hint: Any) -> Any:
    """Return the type of a list's or tuple's items; None for any other type."""
    if get_origin(hint) not in (tuple, list):
        return None
    items = get_args(hint)[0]
    return get_args(items)[0] if get_origin(items) is Annotated else items


def list_bounds(field: FieldInfo) -> dict[str, float]:
    """Return the bounds of a field: `ge`, `gt`, `le`, `lt` → number."""
    return {
        bound: getattr(rule, bound)
        for rule in field.metadata
        for bound in BOUNDS
        if hasattr(rule, bound)
    }


def describe_field(kind: type[Settings], field: FieldInfo) -> str:
    """Return what the help says of an option: meaning, bounds and default."""
    notes = [f"{BOUNDS[bound]} {number}" for bound, number in list_bounds(field).items()]
    if not field.is_required() and field.default not in (None, "", ()):
        notes.append(f"default: {format_value(field.default)}")
    text = field.description or ""
    if notes:
        text += f" ({', '.join(notes)})"
    return spell_settings(text, make_option_speller(kind)).replace("%", "%%")


def _name_option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _spell_options(kind: type[Settings], argv: Sequence[str] | None) -> list[str]:
    """Return a command line whose `--max_length` is `--max-length`, where that is one of ours."""
    ours = {f"--{name}": _name_option(name) for name in kind.model_fields}
    words = []
    for word in sys.argv[1:] if argv is None else argv:
        name, equals, value = word.partition("=")
        words.append(f"{ours.get(name, name)}{equals}{value}")
    return words


def _fill(kind: type[Model], given: argparse.Namespace) -> Model:
    """Return the model of the words that argparse found."""
    values = {}
    for name, words in vars(given).items():
        hint = kind.model_fields[name].annotation
        if get_origin(strip_none(hint)) is dict:
            values[name] = parse_assignments(words)
            continue
        try:
            values[name] = parse_text(hint, words) if isinstance(words, str) else words
        except UserError as mistake:
            raise UserError(mistake.message, name, words) from None
    return build_settings(kind, values)
