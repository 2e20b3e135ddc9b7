"""One way to read what a user sets: options of a job, `--set` texts, fields of a form or a file.

A frozen dataclass says what can be set; each field says what it means, and what it may be:

    @dataclass(frozen=True, kw_only=True)
    class Packing:
        max_length: int = setting("tokens of a sequence", 128, ge=16, le=65_535)

From it come the option `--max-length` with its help, the value of a text, and the bounds, which
`flows` also puts into its forms. Decided against pydantic-settings, tyro and typer: a GPU machine
and a Dataflow worker have none of them, and argparse reads command lines well.
"""

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from beam_jobs.job.errors import UserError

Config = TypeVar("Config")

LARGEST_SEED = 2**32 - 1
BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
KINDS = {int: "a whole number", float: "a number", bool: "true or false"}
METAVARS = {int: "N", float: "X", bool: "BOOL", str: "TEXT", Path: "PATH"}


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a field means, with its unit, and what it may be."""

    help: str
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    metavar: str = ""
    option: str = ""
    """How the command line calls it, where not after the field's name."""
    is_flag: bool = False
    """A boolean that is true as soon as the command line names it."""
    is_positional: bool = False
    needs: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    """Another setting, or what a job says of itself → its values with which this one is read."""

    def describe_bounds(self) -> str:
        """Return the bounds in words, or nothing where there are none."""
        if self.ge is not None and self.le is not None:
            return f"from {self.ge} to {self.le}"
        words = {
            "at least": self.ge,
            "more than": self.gt,
            "at most": self.le,
            "less than": self.lt,
        }
        return " and ".join(f"{word} {bound}" for word, bound in words.items() if bound is not None)

    def holds(self, number: float) -> bool:
        """Return whether a number is within the bounds."""
        return not (
            (self.ge is not None and number < self.ge)
            or (self.gt is not None and number <= self.gt)
            or (self.le is not None and number > self.le)
            or (self.lt is not None and number >= self.lt)
        )


def setting(help: str, default: Any = dataclasses.MISSING, **bounds_and_form: Any) -> Any:
    """Return a field of a dataclass; what is neither meaning nor default is `Setting`'s."""
    metadata = {"setting": Setting(help, **bounds_and_form)}
    return dataclasses.field(default=default, metadata=metadata)


def list_settings(config: Any) -> dict[str, tuple[Any, Setting]]:
    """Return type and Setting of every field of a dataclass that has one, in their order."""
    hints = get_type_hints(config)
    settings = {f.name: f.metadata.get("setting") for f in dataclasses.fields(config)}
    return {name: (hints[name], setting) for name, setting in settings.items() if setting}


def find_unread(
    configs: Sequence[Any], given: Iterable[str], facts: Mapping[str, Any]
) -> Iterator[str]:
    """Yield why nothing reads what was given: a line that begins with the setting.

    `facts` are what a job says besides the configs' own values; what nobody says is not asked.
    """
    fields = {name: config for config in configs for name in list_settings(type(config))}
    values = {**{name: getattr(config, name) for name, config in fields.items()}, **facts}
    for name in given:
        if name in fields:
            needs = list_settings(type(fields[name]))[name][1].needs
            yield from describe_unmet_needs(name, needs, values)


def describe_unmet_needs(
    name: str, needs: Mapping[str, Sequence[Any]], values: Mapping[str, Any]
) -> Iterator[str]:
    """Yield a line for everything that a setting needs and that is otherwise."""
    for other, allowed in needs.items():
        value = values.get(other, allowed[0])
        there = value if isinstance(value, list | tuple) else [value]
        if not set(there) & set(allowed):
            verb = "has" if isinstance(value, list | tuple) else "is"
            words, said = " or ".join(map(format_value, allowed)), format_value(value) or "empty"
            yield (
                f"{name} has no effect where {other} is {said}, only where it "
                f"{verb} {words}: leave it out"
            )


def check_settings(config: Any) -> None:
    """Raise a UserError `name=value: must be …` for the first field that is out of its bounds."""
    for name, (hint, setting) in list_settings(type(config)).items():
        if mistake := find_mistake(hint, setting, getattr(config, name)):
            raise UserError(f"{name}={format_value(getattr(config, name))}: {mistake}")


def find_mistake(hint: Any, setting: Setting, value: Any) -> str:
    """Return what is wrong with the value of a setting, or nothing."""
    options = list_choices(hint)
    if options and value is not None and value not in options:
        return f"must be {' or '.join(map(str, options))}"
    for number in value if isinstance(value, tuple) else [value]:
        if isinstance(number, int | float) and not math.isfinite(number):
            return "must be a finite number"
        if isinstance(number, int | float) and not setting.holds(number):
            return f"must be {setting.describe_bounds()}"
    return ""


def strip_none(hint: Any) -> Any:
    """Return X of `X | None`, and any other type as it is."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    return next(kind for kind in get_args(hint) if kind is not NoneType)


def list_choices(hint: Any) -> tuple[Any, ...]:
    """Return the values of a Literal, of any other type nothing."""
    kind = strip_none(hint)
    return get_args(kind) if get_origin(kind) is Literal else ()


def format_value(value: Any) -> str:
    """Return a value as `--set` takes it."""
    if isinstance(value, list | tuple):
        return ",".join(map(format_value, value))
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


def parse_value(hint: Any, text: str) -> Any:
    """Return the value that a text stands for: `5e-4`, `1_000`, `true`, `none`, `1e-4,3e-4`, JSON.

    Raises a UserError `expected …`.
    """
    kind = strip_none(hint)
    if kind is not hint and text.lower() in ("none", "all"):
        return None
    try:
        if get_origin(kind) in (tuple, list):
            inner = get_args(kind)[0]
            return get_origin(kind)(
                parse_value(inner, format_value(part)) for part in parse_structure(text, True)
            )
        if get_origin(kind) is Literal:
            return {str(option): option for option in get_args(kind)}[text]
        if kind is bool:
            return BOOLEANS[text.lower()]
        return kind(text) if kind in (int, float, Path) else text
    except (UserError, ValueError, KeyError):
        raise UserError(f"expected {describe_kind(kind)}") from None


def parse_structure(text: str, is_list: bool) -> Any:
    """Return JSON from a text that begins like it, the parts of `a,b,c` for a list, or the text."""
    if text.startswith(("[", "{")):
        try:
            return json.loads(text)
        except ValueError as error:
            raise UserError(f"not valid JSON: {error}") from None
    return [part.strip() for part in text.split(",") if part.strip()] if is_list else text


def describe_kind(kind: Any) -> str:
    """Return in words what a value of this type looks like."""
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    if get_origin(kind) in (tuple, list):
        return f"{describe_kind(get_args(kind)[0])}, or several with commas between them"
    return KINDS.get(kind, getattr(kind, "__name__", str(kind)))


def describe_unknown(name: str, known: Iterable[str], what: str = "field") -> str:
    """Return that there is no such field, which there are, and the one that was probably meant."""
    known = list(known)
    close = get_close_matches(name, known, 1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"no such {what}; there are {', '.join(known)}{hint}"


def parse_assignments(option: str, texts: Sequence[str], form: str) -> dict[str, str]:
    """Return name → value of an option that may be repeated, each time as NAME=VALUE.

    `form` is how the help writes it, for the UserError about a text without an equals sign.
    """
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"{option} {text}: write {form}")
        values[name] = value
    return values


def parse_field(config: type, name: str, text: str) -> Any:
    """Return the value of a dataclass's field from its text."""
    if name not in list_settings(config):
        raise UserError(f"{name}: {describe_unknown(name, list_settings(config))}")
    try:
        return parse_value(list_settings(config)[name][0], text)
    except UserError as mistake:
        raise UserError(f"{name}={text}: {mistake}") from None


def replace_settings(configs: Sequence[Any], texts: Mapping[str, str], section: str) -> list[Any]:
    """Return the dataclasses with the fields that the texts name, as `field` or `section.field`.

    Raises a UserError that begins with `field: ` or `field=text: `.
    """
    known = {n: i for i, config in enumerate(configs) for n in list_settings(type(config))}
    changes: list[dict[str, Any]] = [{} for _ in configs]
    for path, text in texts.items():
        name = path.removeprefix(f"{section}.")
        if name not in known:
            sections = f", and the section here is {section}" if "." in name else ""
            raise UserError(f"{path}: {describe_unknown(name, known)}{sections}")
        changes[known[name]][name] = parse_field(type(configs[known[name]]), name, text)
    return [dataclasses.replace(c, **change) for c, change in zip(configs, changes, strict=True)]


class OptionParser(argparse.ArgumentParser):
    """argparse that takes `--max_length` for `--max-length`, and raises mistakes as UserErrors."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **options})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = sys.argv[1:] if args is None else args
        return super().parse_known_args([self._spell_option(word) for word in words], namespace)

    def _spell_option(self, word: str) -> str:
        name, equals, value = word.partition("=")
        kebab = name.replace("_", "-")
        return f"{kebab}{equals}{value}" if kebab in self._option_string_actions else word

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        values, unknown = self.parse_known_args(args, namespace)
        if unknown:
            name = unknown[0].partition("=")[0]
            self.error(f"{name}: {describe_unknown(name, self._list_options(values), 'option')}")
        return values

    def _list_options(self, values: argparse.Namespace) -> list[str]:
        """Return the long options of this parser and of the command that was chosen."""
        options = [o for o in self._option_string_actions if o.startswith("--")]
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                chosen = action.choices[getattr(values, action.dest)]
                options += chosen._list_options(values)
        return list(dict.fromkeys(options))

    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def read_options(
    kind: type[Config], argv: Sequence[str] | None, program: str, description: str | None
) -> Config:
    """Return the options of a command line; UserError where it has others."""
    parser = OptionParser(prog=program, description=description)
    add_options(parser, kind)
    return build_options(kind, parser.parse_args(argv))


def read_known_options(
    kind: type[Config], argv: Sequence[str] | None, program: str, description: str
) -> tuple[Config, list[str]]:
    """Return the options of a command line, and what it has besides."""
    parser = OptionParser(prog=program, description=description)
    add_options(parser, kind)
    values, rest = parser.parse_known_args(argv)
    return build_options(kind, values), rest


def add_options(parser: argparse.ArgumentParser, kind: type) -> None:
    """Add an option for every field; those of a base class stand in a group of their own."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for owner in reversed(kind.__mro__):
        own = {
            n: s
            for n, s in list_settings(kind).items()
            if n in vars(owner).get("__annotations__", ())
        }
        group: Any = parser
        if own and owner is not kind:
            group = parser.add_argument_group((owner.__doc__ or "").rstrip(".").lower())
        for name, (hint, setting) in own.items():
            add_option(group, fields[name], hint, setting)


def add_option(group: Any, field: "dataclasses.Field[Any]", hint: Any, setting: Setting) -> None:
    """Add the option of one field."""
    is_required = field.default is dataclasses.MISSING
    words: dict[str, Any] = {
        "default": argparse.SUPPRESS,
        "help": _describe_option(field, hint, setting),
    }
    name = setting.option or f"--{field.name.replace('_', '-')}"
    if setting.is_positional:
        group.add_argument(field.name, metavar=setting.metavar, **words)
        return
    if setting.is_flag:
        group.add_argument(name, dest=field.name, action="store_const", const="true", **words)
        return
    items = get_args(hint)[0] if get_origin(hint) is tuple else None
    if setting.option:
        words["action"] = "append"
    elif items is not None:
        words |= {"nargs": "+" if is_required else "*"}
        words |= {"action": "append"} if get_origin(items) is tuple else {}
    choices = "{" + ",".join(map(str, list_choices(hint))) + "}"
    metavar = setting.metavar or METAVARS.get(strip_none(hint), choices)
    group.add_argument(name, dest=field.name, required=is_required, metavar=metavar, **words)


def _describe_option(field: "dataclasses.Field[Any]", hint: Any, setting: Setting) -> str:
    text, bounds = setting.help, setting.describe_bounds()
    has_default = field.default not in (dataclasses.MISSING, None, "", ()) and not setting.is_flag
    notes = [bounds, f"default: {format_value(field.default)}" if has_default else ""]
    note = ", ".join(filter(None, notes))
    return (f"{text} ({note})" if note else text).replace("%", "%%")


def build_options(kind: type[Config], given: argparse.Namespace) -> Config:
    """Return the dataclass of the words that argparse found, each converted and within bounds."""
    values = {}
    for name, (hint, setting) in list_settings(kind).items():
        if hasattr(given, name):
            values[name] = _convert(
                _format_option(name, setting), hint, setting, getattr(given, name)
            )
    return kind(**values)


def _format_option(name: str, setting: Setting) -> str:
    return setting.option or ("" if setting.is_positional else "--") + name.replace("_", "-")


def _convert(spelled: str, hint: Any, setting: Setting, words: Any) -> Any:
    try:
        value = _parse_words(hint, words)
    except UserError as error:
        raise UserError(f"{spelled} {_join(words)}: {error}") from None
    if mistake := find_mistake(hint, setting, value):
        raise UserError(f"{spelled} {_join(words)}: {mistake}")
    return value


def _parse_words(hint: Any, words: Any) -> Any:
    if not isinstance(words, list):
        return parse_value(hint, words)
    return tuple(_parse_words(get_args(hint)[0], word) for word in words)


def _join(words: Any) -> str:
    return words if isinstance(words, str) else " ".join(map(_join, words))
