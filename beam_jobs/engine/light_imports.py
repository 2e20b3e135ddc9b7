"""Imports large packages without the parts that a job does not need.

What a package loads "if it is installed", or in an `__init__` whose names nobody asks for, costs
every process seconds. Both are kept out only while an import runs: later imports work as ever.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType


class HidingFinder:
    """Finds no module of some names, and keeps whoever asks next from finding it."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in self._names:
            raise ModuleNotFoundError(f"{name} is hidden", name=name)


@contextmanager
def hide_modules(*names: str) -> Iterator[None]:
    """Let `import name` fail within the context, unless it was imported before.

    None in sys.modules would do for Python's import, but not for that of a module in Cython, such
    as pyarrow's.
    """
    finder = HidingFinder({name for name in names if name not in sys.modules})
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@contextmanager
def skip_package_init(*names: str) -> Iterator[None]:
    """Import modules of packages without running the packages' own `__init__`.

    `names` are a package and those below it, outer ones first. Afterwards nothing of the outermost
    is left in sys.modules, so that a later import finds all of it. Where it was imported before,
    nothing is changed.
    """
    outermost = names[0]
    if outermost in sys.modules:
        yield
        return
    for name in names:
        sys.modules[name] = make_bare_package(name)
    try:
        yield
    finally:
        for name in [n for n in sys.modules if n == outermost or n.startswith(f"{outermost}.")]:
            del sys.modules[name]


def make_bare_package(name: str) -> ModuleType:
    """Return a package that finds its modules and has none of the names of its `__init__`."""
    spec = find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"{name} is not an installed package", name=name)
    package = ModuleType(name)
    package.__path__ = list(spec.submodule_search_locations)
    package.__spec__ = spec
    return package
