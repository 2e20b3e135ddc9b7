"""Prints what the installation takes on disk, by the file that pins it: one machine, servers and
object stores, tests, and torch with all it needs.

Run it in the environment that `make install-dev` makes; a package that is not installed counts
nothing.
"""

import argparse
import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

DEPLOY = Path(__file__).parents[2] / "deploy"
FILES = tuple(f"requirements{part}.txt" for part in ("-local", "", "-published", "-dev"))


def normalize_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pinned_names(path: Path) -> set[str]:
    pins = re.findall(r"^([\w.-]+)(?:\[.*?\])?==", path.read_text(), re.MULTILINE)
    return {normalize_name(name) for name in pins}


def list_needed_names(name: str) -> set[str]:
    """Return a package and all that it needs, of what is installed."""
    found, left = set[str](), [name]
    while left:
        if (name := normalize_name(left.pop())) in found:
            continue
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        found.add(name)
        left += [match[0] for need in needs if (match := re.match(r"[\w.-]+", need))]
    return found


def measure_sizes() -> dict[str, int]:
    """Return bytes on disk by package."""
    sizes = {}
    for package in metadata.distributions():
        places = (Path(str(file.locate())) for file in package.files or [])
        sizes[normalize_name(package.metadata["Name"])] = sum(
            place.stat().st_size for place in places if place.is_file()
        )
    return sizes


def print_group(title: str, names: Iterable[str], sizes: dict[str, int], largest: int) -> None:
    there = sorted((name for name in names if name in sizes), key=lambda name: -sizes[name])
    total = sum(sizes[name] for name in there) / 1e6
    first = ", ".join(f"{name} {sizes[name] / 1e6:,.0f}" for name in there[:largest])
    print(f"{title:24} {len(there):4} packages {total:7,.0f} MB: {first}")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=3, help="packages named in each group")
    arguments = parser.parse_args(argv)
    sizes, seen = measure_sizes(), set[str]()
    for name in FILES:
        pinned = read_pinned_names(DEPLOY / name) - seen
        print_group(name, pinned, sizes, arguments.largest)
        seen |= pinned
    print_group("torch", list_needed_names("torch") - seen, sizes, arguments.largest)


if __name__ == "__main__":
    main()
