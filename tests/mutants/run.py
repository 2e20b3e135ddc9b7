"""Mutates the modules that decide numbers and bytes, and runs their tests on each mutant.

`make mutants` runs it in an environment of its own; tests/README.md says when. Fails if a mutant
survives that survivors.toml does not list, or if fewer than 90% of a module's are killed.
"""

import argparse
import contextlib
import importlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WALLS = ("beam_jobs", "flows", "model", "tests")
LEAST_KILLED = 0.9
MEMORY = 8 << 30
"""Bytes that a mutant may take: `1 << 20` can become `1 ** 20`, but also `10 ** 20`."""


class Outcome(NamedTuple):
    passed: bool
    exit_code: int  # negative: the signal that ended it
    cpu_seconds: float


def copy_checkout(folder: Path) -> None:
    """Copy the files that git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def run_pytest(arguments: list[str], imported: Path) -> int:
    """Run pytest in this process, and write down what it has imported from elsewhere."""
    import pytest

    code = pytest.main(arguments)
    names = [name for name in sys.modules if name.split(".")[0] not in WALLS]
    imported.write_text(json.dumps(names))
    return int(code)


def test_in_child(tests: list[str], scratch: Path, cpu: int, wall: float) -> Outcome:
    """Run the tests in a fork of this process, in the copy, until the first that fails.

    CPU seconds are what is limited, since the machine may be busy; the wall's limit is for what
    waits for ever.
    """
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.setsid()
            output = os.open(scratch / "output.txt", os.O_WRONLY | os.O_CREAT)
            os.dup2(output, 1)
            os.dup2(output, 2)
            resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 5))
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
            arguments = ["-x", "--tb=short", f"--basetemp={scratch / 'pytest'}", *tests]
            code = run_pytest(arguments, scratch / "imported.json")
        finally:
            os._exit(code)
    deadline = time.monotonic() + wall
    while True:
        pid, status, usage = os.wait4(child, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):  # what the tests started
        os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status)
    return Outcome(code == 0, code, usage.ru_utime + usage.ru_stime)


def preload(names: list[str]) -> None:
    """Import what the tests need from elsewhere once, instead of in each mutant."""
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def write_source(path: Path, code: str) -> None:
    path.write_text(code)
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def run_module(
    name: str, module: dict[str, Any], arguments: argparse.Namespace, copy: Path
) -> tuple[str, int, int, list[Any]]:
    """Return the module's name, how many mutants ran and were killed, and those that survived."""
    import mutations

    sample = [
        mutant
        for mutant in mutations.take_sample(copy, module["files"], arguments.sample)
        if arguments.line in mutant.before
    ]
    scratch = copy.parent / "scratch"
    baseline = test_in_child(module["tests"], scratch, 3600, 3600)
    if not baseline.passed:
        sys.exit(f"{name}: its tests fail unmutated:\n{(scratch / 'output.txt').read_text()}")
    preload(json.loads((scratch / "imported.json").read_text()))
    cpu, wall = int(3 * baseline.cpu_seconds + 10), 20 * baseline.cpu_seconds + 120
    print(f"{name}: {len(sample)} mutants; its tests took {baseline.cpu_seconds:.1f} CPU seconds")
    survivors = []
    for mutant in sample:
        original = (copy / mutant.file).read_text()
        write_source(copy / mutant.file, mutant.code)
        outcome = test_in_child(module["tests"], scratch, cpu, wall)
        write_source(copy / mutant.file, original)
        if outcome.exit_code > 2:
            sys.exit(f"pytest itself failed:\n{(scratch / 'output.txt').read_text()}")
        if outcome.passed:
            survivors.append(mutant)
        if arguments.verbose:
            print(
                f"  {'SURVIVED' if outcome.passed else 'killed'} ({outcome.exit_code}, "
                f"{outcome.cpu_seconds:.1f} s) {mutant.file}:{mutant.line}\n"
                f"    {mutant.before!r}\n    {mutant.after!r}",
                flush=True,
            )
    return name, len(sample), len(sample) - len(survivors), survivors


def report(results: list[tuple[str, int, int, list[Any]]]) -> bool:
    """Print the scores and the survivors that are not listed; return whether all is well."""
    listed = {
        (s["file"], s["before"], s["after"])
        for s in tomllib.loads((HERE / "survivors.toml").read_text()).get("survivor", [])
    }
    well = True
    for name, ran, killed, survivors in results:
        unlisted = [s for s in survivors if (s.file, s.before, s.after) not in listed]
        score = killed / max(ran, 1)
        well = well and not unlisted and (score >= LEAST_KILLED or not ran)
        print(f"{name}: {killed} of {ran} killed ({score:.0%}), {len(unlisted)} unlisted survivors")
        for s in unlisted:
            print(
                f"\n# line {s.line}\n[[survivor]]\nfile = {json.dumps(s.file)}\n"
                f"before = {json.dumps(s.before)}\nafter = {json.dumps(s.after)}\n"
                'reason = ""\n'
            )
    return well


def parse_sample(text: str) -> int | None:
    return None if text == "all" else int(text)


def main() -> None:
    modules = tomllib.loads((HERE / "modules.toml").read_text())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="module", help=", ".join(modules))
    parser.add_argument("--sample", type=parse_sample, default=40, help="a number, or all")
    parser.add_argument("--line", default="", help="only mutations of lines with this text")
    parser.add_argument("--verbose", action="store_true", help="print every mutant")
    arguments = parser.parse_args()
    if unknown := set(arguments.modules) - set(modules):
        parser.error(f"no module {', '.join(sorted(unknown))}; there are {', '.join(modules)}")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        copy_checkout(copy)
        os.chdir(copy)
        sys.path[:] = [str(copy), *(p for p in sys.path if p != str(ROOT))]
        os.environ["PYTHONPATH"] = str(copy)
        results = [
            run_module(name, modules[name], arguments, copy)
            for name in arguments.modules or modules
        ]
    sys.exit(not report(results))


if __name__ == "__main__":
    main()
