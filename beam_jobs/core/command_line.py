"""Command lines made of functions: an argument is an option, and so is each field of a config.

    def pack(config: Packing, output: Annotated[Path, Doc("folder of the shards")]) -> Result: ...

has `--max-length N --output PATH`; a field of a section is `--section.field`, checked by its model.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from inspect import Parameter as Argument
from inspect import Signature, getdoc, signature
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from cyclopts import App, CycloptsError, Group, Parameter
from pydantic.fields import FieldInfo
from typing_extensions import Doc

from amazon_electra.beam_jobs.core import command
from amazon_electra.beam_jobs.core.errors import UserError, format_value
from amazon_electra.beam_jobs.core.files import check_name
from amazon_electra.beam_jobs.core.results import Result
from amazon_electra.beam_jobs.core.settings import (
    BOUNDS,
    Settings,
    build_settings,
    list_bounds,
    parse_text,
)

BEAM_OPTIONS = "beam_options"  # argument of a job for the words that are no options of its own
METAVARS = {str: "TEXT", int: "N", float: "X", bool: None}
DOT = "__"  # of `section.field`, where Python wants a name


def run_as_command(job: Callable[..., Any]) -> NoReturn:
    """Run a job as this process's command line says, print its result as JSON and end."""
    command.main(lambda: call_job(job, sys.argv[1:]))


def call_job(job: Callable[..., Any], words: Sequence[str]) -> dict[str, Any]:
    """Call a job with the arguments that the words of a command line say; return its result."""
    for word in words:
        check_name(word)
    spec = sys.modules["__main__"].__spec__
    name = f"python -m {spec.name}" if spec and job.__module__ == "__main__" else job.__name__
    app = App(name=name, help_format="plaintext", version_flags=())
    function = make_command(job, {"labels": "--label"})  # else Beam takes it for Dataflow's label
    app.default(function)
    more: dict[str, Any] = {}
    try:
        if BEAM_OPTIONS in signature(job).parameters:
            chosen, bound, more[BEAM_OPTIONS], _ = app.parse_known_args(words)
        else:
            chosen, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    except CycloptsError as wrong:
        raise UserError(explain(wrong)) from None
    if chosen is not function:
        chosen(*bound.args, **bound.kwargs)  # it prints the help
        raise SystemExit(0)
    result = function(*bound.args, **bound.kwargs, **more)
    if isinstance(result, Result):
        return result.content
    return asdict(result) if is_dataclass(result) and not isinstance(result, type) else result


def explain(wrong: CycloptsError) -> str:
    """Return in one line what is wrong with a command line."""
    wrong.verbose = False
    return " ".join(str(wrong).split())


def make_command(
    function: Callable[..., Any], short: Mapping[str, str] = {}, left_out: Sequence[str] = ()
) -> Callable[..., Any]:
    """Return the function as cyclopts calls it, with the words that were typed.

    An argument that is a model becomes the options of its fields; one that is annotated with a
    model (`Annotated[dict[str, Any], Form]`) gets what was typed, by section. `short` has further
    names of fields, by path; fields and sections that are `left_out` are no options.
    """
    hints, own = get_type_hints(function, include_extras=True), signature(function).parameters
    forms = {name: list_fields(model) for name in own if (model := find_model(hints[name]))}
    fields = {
        path: field
        for form in forms.values()
        for path, field in form.items()
        if path not in own and not {path, path.partition(".")[0]} & {*left_out}
    }
    names_of = {name: short.get(name, name_option(name)) for name in (*fields, *own)}
    arguments = list[Argument]()
    for name, one in own.items():
        if name not in (*forms, BEAM_OPTIONS):
            about = "".join(d.documentation for d in get_args(hints[name]) if isinstance(d, Doc))
            if one.default not in (Argument.empty, None, False, "", ()):
                about += f" (default: {format_value(one.default)})"
            if one.default is not Argument.empty and one.default is not False:
                one = one.replace(default=None)  # nothing was given
            arguments.append(make_argument(one, simplify(hints[name]), about, [name_option(name)]))
    sections = dict.fromkeys(path.rpartition(".")[0] for path in fields)
    groups = {name: Group(name, sort_key=n) for n, name in enumerate(sections) if name}
    for path, field in fields.items():
        kind = simplify(field.annotation)
        if kind in (bool, int, float):  # its model reads the word
            kind = Literal["true", "false"] if kind is bool else str
        names = list(dict.fromkeys([names_of[path], name_option(path)]))
        group = groups.get(path.rpartition(".")[0], "Parameters")
        option = Argument(path.replace(".", DOT), Argument.KEYWORD_ONLY, default=None)
        arguments.append(make_argument(option, kind, describe_field(field), names, group))

    def call(*words: Any, **given: Any) -> Any:
        typed = {name.replace(DOT, "."): value for name, value in given.items()}
        for name, value in typed.items():  # a command may be typed again with other words
            hint = hints[name] if name in own else fields[name].annotation
            if isinstance(value, list) and value and simplify(hint) != list[str]:
                typed[name] = value[-1]
        values = {name: typed.pop(name) for name in list(typed) if name in own}
        try:
            for name, form in forms.items():
                nested: dict[str, Any] = {}
                for path in form.keys() & typed.keys():
                    *sections, last = path.split(".")
                    place = nested
                    for section in sections:
                        place = place.setdefault(section, {})
                    one, hint = typed[path], form[path].annotation
                    place[last] = parse_text(hint, one) if isinstance(one, str) else one
                hint = hints[name]
                values[name] = build_settings(hint, nested) if isinstance(hint, type) else nested
            return function(*words, **values)
        except UserError as mistake:  # a job may name a field without its section
            field = mistake.field.rpartition(".")[2]
            ends = [name for path, name in names_of.items() if path.rpartition(".")[2] == field]
            option = names_of.get(mistake.field) or next(iter(ends), mistake.field)
            raise UserError(mistake.message, option, mistake.value) from None

    arguments.sort(key=lambda one: one.kind)
    call.__signature__ = Signature(arguments)  # type: ignore[attr-defined]
    call.__doc__ = (getdoc(function) or "").partition("\n\n")[0]
    return call


def find_model(hint: Any) -> type[Settings] | None:
    parts = get_args(hint) if get_origin(hint) is Annotated else [hint]
    return next((p for p in parts if isinstance(p, type) and issubclass(p, Settings)), None)


def list_fields(kind: type[Settings], section: str = "") -> dict[str, FieldInfo]:
    """Return the fields of a model by path: those of its sections and `others` too."""
    found: dict[str, FieldInfo] = {}
    for name, field in kind.model_fields.items():
        if inner := find_model(field.annotation):
            found |= list_fields(inner, f"{section}{name}.")
        elif name != "settings" or not kind.others:
            found[section + name] = field
    for other in kind.others:
        found |= {n: f for n, f in list_fields(other, section).items() if n not in found}
    return found


def make_argument(
    argument: Argument, kind: Any, about: str, names: list[str], group: Group | str = "Parameters"
) -> Argument:
    """Return an argument as cyclopts takes it, in the help below its group."""
    shown = Parameter(help=about, negative=(), show_default=False)
    if argument.kind == Argument.POSITIONAL_ONLY:
        return argument.replace(annotation=Annotated[kind, shown])
    is_several = kind == list[str]
    metavar = "TEXT..." if is_several else METAVARS.get(kind, "CHOICE")
    named = Parameter(name=names, group=group, consume_multiple=is_several, metavar=metavar)
    if kind is not bool:
        kind = (kind if is_several else GenericAlias(list, (kind | None,))) | None
    annotation = Annotated[kind, shown, named]
    return argument.replace(kind=Argument.KEYWORD_ONLY, annotation=annotation)


def simplify(hint: Any) -> Any:
    """Return the type that cyclopts makes of words: a list of texts, a choice, a number or text."""
    origin = get_origin(hint)
    if origin is Annotated:
        return simplify(get_args(hint)[0])
    if origin in (Union, UnionType):
        kinds = [simplify(kind) for kind in get_args(hint) if kind is not NoneType]
        return list[str] if list[str] in kinds else kinds[0]
    if origin in (list, tuple, Sequence):
        return list[str]
    return hint if origin is Literal or hint in (bool, int, float) else str


def name_option(path: str) -> str:
    return f"--{path.replace('_', '-')}"


def describe_field(field: FieldInfo) -> str:
    notes = [f"{BOUNDS[bound]} {number}" for bound, number in list_bounds(field).items()]
    if not field.is_required() and field.default not in (None, "", (), []):
        notes.append(f"default: {format_value(field.default)}")
    about = " ".join((field.description or "").split())  # of lines, if it is a docstring
    return about + (f" ({', '.join(notes)})" if notes else "")
