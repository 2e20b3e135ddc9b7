"""Every format of review files by name: ours, registered ones, and those of entry points."""

from typing import Any

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.plugins import load_plugins, register_module
from amazon_electra.beam_jobs.core.settings import list_valid
from amazon_electra.beam_jobs.reading.compression import PACKED
from amazon_electra.beam_jobs.reading.delimited import Delimited
from amazon_electra.beam_jobs.reading.excel import Excel
from amazon_electra.beam_jobs.reading.format import Format
from amazon_electra.beam_jobs.reading.json_records import JsonLines, JsonObjects, PythonLines
from amazon_electra.beam_jobs.reading.parquet_records import Parquet
from amazon_electra.beam_jobs.reading.text_lines import FastText, PlainText, Snap

OURS: tuple[type[Format], ...] = (
    *(JsonLines, JsonObjects, PythonLines),
    *(FastText, Snap, Parquet, Excel, PlainText, Delimited),
)
FORMATS: dict[str, Format] = {kind.name: kind() for kind in OURS}


def register_format(kind: type[Format]) -> type[Format]:
    """Add a format, also as the decorator of its class; ValueError for a name that is taken."""
    if type(FORMATS.setdefault(kind.name, kind())) is not kind:
        raise ValueError(f"two formats are called {kind.name}")
    register_module(kind.__module__)
    return kind


def list_formats() -> dict[str, Format]:
    """Return every format by name, in the order in which they are asked: others before ours."""
    load_plugins()
    ours = {kind.name for kind in OURS}
    return dict(sorted(FORMATS.items(), key=lambda item: item[0] in ours))


def find_format(name: str) -> Format:
    """Return a format; UserError names those that there are."""
    if name not in FORMATS:
        load_plugins()
    require(name in FORMATS, list_valid(FORMATS, "format"), "format", name)
    return FORMATS[name]


def add_format_names(schema: dict[str, Any]) -> None:
    """Let a JSON schema of a field list the names of formats."""
    for kind in schema.get("anyOf", [schema]):
        if kind.get("type") == "string":
            kind["enum"] = [*list_formats()]


def list_endings() -> list[str]:
    """Return the endings of names of dumps, without the dot."""
    endings = (ending for one in list_formats().values() for ending in one.endings)
    return list(dict.fromkeys(endings))


def strip_endings(name: str) -> str:
    """Return the name of a dump without what says its format and compression."""
    for endings in (PACKED, list_endings()):
        stem, dot, ending = name.rpartition(".")
        name = stem if dot and ending.lower() in endings else name
    return name
