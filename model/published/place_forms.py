"""How users write where a published encoder lies: a folder, a name on the hub, a model of MLflow's
registry, or an installed package.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

Kind = Literal["folder", "hub", "registry", "package"]
PATTERNS: Mapping[Kind, re.Pattern[str]] = {
    "package": re.compile(r"package:(?P<name>[\w.-]+)"),
    "registry": re.compile(r"models:/(?P<name>[^/@]+)(@(?P<alias>[\w.-]+)|/(?P<version>\d+))"),
    "hub": re.compile(r"(?P<name>[\w-][\w.-]*/[\w.-]+)(@(?P<revision>[\w./-]+))?"),
}
FORMS = (
    "a folder, a name on the hub (org/name, or org/name@REVISION), models:/NAME@ALIAS or "
    "package:MODULE"
)


def find_kind(place: str) -> Kind | None:
    """Return of which kind a place is, or None where it is none that can be meant."""
    if Path(place).expanduser().is_dir() or place.startswith(("/", ".", "~")):
        return "folder"
    return next((kind for kind, form in PATTERNS.items() if form.fullmatch(place)), None)


def parse_place(kind: Kind, place: str) -> dict[str, str]:
    """Return the parts of a place that is no folder: its name, and alias, version or revision,
    empty where it has none; nothing where it is not written as this kind is.
    """
    found = PATTERNS[kind].fullmatch(place)
    return {name: part or "" for name, part in found.groupdict().items()} if found else {}
