"""Formats, tasks, objectives, arms and stages from other packages: modules that are entry points of
the group `amazon_electra.plugins`, or that a `register_…` function adds, for children too.
"""

import importlib
import os
from functools import cache
from importlib.metadata import entry_points

GROUP = "amazon_electra.plugins"
VARIABLE = "AMAZON_ELECTRA_PLUGINS"  # in the environment: further modules, separated by commas


def register_module(module: str) -> None:
    """Let this process's children import a module; ours they import anyway."""
    names = list_modules()
    if module.partition(".")[0] not in ("amazon_electra", "__main__"):
        os.environ[VARIABLE] = ",".join(dict.fromkeys([*names, module]))


def list_modules() -> list[str]:
    return [name for name in os.environ.get(VARIABLE, "").split(",") if name]


def load_plugins() -> None:
    """Import every plugin, each once."""
    for name in (*_list_entry_points(), *list_modules()):
        importlib.import_module(name)


@cache
def _list_entry_points() -> tuple[str, ...]:
    return tuple(point.value for point in entry_points(group=GROUP))
