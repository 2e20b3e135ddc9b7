"""A virtual environment for each tool that a bench compares ours with, made once by uv."""

import argparse
import glob
import json
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[3]


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with what every bench of peers takes."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--input", nargs="+", required=True, metavar="GLOB", help="dumps of reviews")
    add("--scratch", help="folder for data and outputs")
    add("--json", action="store_true", help="a line of JSON instead of the table")
    add(
        "--environments",
        type=Path,
        default=Path(tempfile.gettempdir()) / "amazon-electra-peers",
        help="folder that keeps the other tools' virtual environments",
    )
    return parser


def run_bench(args: argparse.Namespace, run_sides: Callable[..., list[dict]]) -> None:
    """Run all sides in a folder of their own; print their rows, which have the same names."""
    args.input = sorted(path for pattern in args.input for path in glob.glob(pattern))
    with tempfile.TemporaryDirectory(prefix="peers-", dir=args.scratch) as folder:
        rows = run_sides(args, Path(folder))
    if args.json:
        print(json.dumps(rows))
        return
    for row in [list(rows[0]), ["---"] * len(rows[0]), *(row.values() for row in rows)]:
        print("| " + " | ".join(str(cell) for cell in row) + " |")


def make_environment(folder: Path, requirements: list[str], shares_ours: bool = False) -> Path:
    """Return the Python of an environment with the requirements.

    With `shares_ours` it also finds the packages of this Python, after its own: both sides then
    compute with one torch.
    """
    uv, python = [sys.executable, "-m", "uv", "--quiet"], folder.resolve() / "bin" / "python"
    subprocess.run([*uv, "venv", "--allow-existing", folder], check=True)
    if shares_ours:
        [packages] = folder.glob("lib/python*/site-packages")
        (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run([*uv, "pip", "install", "--python", python, *requirements], check=True)
    return python
