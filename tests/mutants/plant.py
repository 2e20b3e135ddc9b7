"""Puts the defects of defects.toml into a clone of the checkout, one at a time, and runs the test
that should notice each. Fails if a test passes with its defect, or fails without it.
"""

import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS_FAILED = 1
"""pytest's exit code: not that of a test that is not there."""


def run_test(copy: Path, test: str) -> int:
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:xdist", test]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{copy}:{copy}/deploy/package",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True).returncode


def is_noticed(copy: Path, defect: dict[str, str]) -> bool:
    """Return whether the test fails with the defect, and passes once it is mended."""
    source = copy / defect["file"]
    sound = source.read_text()
    assert sound.count(defect["before"]) == 1
    source.write_text(sound.replace(defect["before"], defect["after"]))
    spoilt = run_test(copy, defect["test"])
    source.write_text(sound)
    return spoilt == TESTS_FAILED and run_test(copy, defect["test"]) == 0


def main() -> None:
    defects = tomllib.loads((ROOT / "tests/mutants/defects.toml").read_text())["defect"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
        noticed = []
        for defect in defects:
            noticed.append(is_noticed(Path(folder), defect))
            how = "noticed" if noticed[-1] else "NOT NOTICED"
            print(f"{defect['number']:>3} {how}: {defect['what']}", flush=True)
    sys.exit(not all(noticed))


if __name__ == "__main__":
    main()
