"""Makes a virtual environment for each tool that a bench compares ours with.

An environment is made once and used by later runs: a file in it, written last, names what was
installed. It lies outside the repository, and nothing of ours is installed in it, so that a side
that runs there uses the other tool alone.
"""

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
DEFAULT_CACHE = Path(tempfile.gettempdir()) / "amazon-electra-peers"
INSTALLED = "installed.json"


class NoEnvironment(Exception):
    """An environment cannot be made here, for example without a network; one line says why."""


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with what every bench of peers takes: dumps, folders, the form of the result
    and `--environments DIR`, the folder that keeps the environments.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--input", nargs="+", required=True, metavar="GLOB", help="dumps of reviews"
    )
    parser.add_argument(
        "--checkout", type=Path, default=ROOT, help="of ours, to measure another commit"
    )
    parser.add_argument("--scratch", help="folder for data and outputs")
    parser.add_argument("--json", action="store_true", help="a line of JSON instead of the table")
    parser.add_argument(
        "--environments",
        type=Path,
        default=DEFAULT_CACHE,
        metavar="DIR",
        help=f"keeps the other tools' virtual environments (default {DEFAULT_CACHE})",
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
    table = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    for row in table:
        print("| " + " | ".join(str(cell) for cell in row) + " |")


def make_environment(
    name: str,
    requirements: list[str],
    cache: Path = DEFAULT_CACHE,
    timeout: float = 1800,
    shares_our_packages: bool = False,
) -> Path:
    """Return the Python of the environment `name` that holds the requirements; make it if needed.

    With `shares_our_packages` it finds the packages of this Python too, after its own: both sides
    then compute with one torch, which is not installed again. Raises NoEnvironment if it cannot be
    made within `timeout` seconds.
    """
    folder = cache.resolve() / name
    python, installed = folder / "bin" / "python", folder / INSTALLED
    wanted = json.dumps([sys.version_info[:2], sorted(requirements)])
    if installed.exists() and installed.read_text() == wanted and python.exists():
        return python
    installed.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    run_step(name, [sys.executable, "-m", "venv", "--clear", str(folder)], timeout)
    if shares_our_packages:
        [packages] = folder.glob("lib/python*/site-packages")
        (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    if requirements:
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run_step(name, [*pip, *requirements], timeout)
    installed.write_text(wanted)
    return python


def run_step(name: str, command: list[str], timeout: float) -> None:
    """Run one step of making an environment; raise NoEnvironment with its last line if it fails."""
    try:
        subprocess.run(
            command,
            check=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    except subprocess.TimeoutExpired:
        raise NoEnvironment(f"{name}: not installed within {timeout:.0f} s") from None
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"exit status {error.returncode}"]
        raise NoEnvironment(f"{name}: {lines[-1]}") from None
