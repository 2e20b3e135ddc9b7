"""Writes the hashes of the packages that constraints.txt pins: `python deploy/hash_pins.py`.

Run it again after a change of constraints.txt or of the dependencies; it needs `pip install uv` and
the package index. requirements-local.txt is what one machine needs, requirements.txt what servers
and workers run on besides (object stores, PostgreSQL), requirements-published.txt the
published encoder of the second demo, requirements-dev.txt what the tests need besides,
dataflow/requirements.txt what the workers of the Beam jobs need. None has torch and what it brings
along: its build depends on the machine.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from amazon_electra.beam_jobs.engine.staged_package import REQUIREMENTS

DEPLOY = Path(__file__).parent
ROOT = DEPLOY.parent
RUNTIME_EXTRAS = ("aws", "gcp", "postgres")
TO_INSTALL = "setuptools>=77"
"""What installs the project itself, without a network."""
WITHOUT_TORCH = "torch; python_version < '0'\n"
"""An override that nothing is true of: torch is left out with all it needs."""


def compile_pins(requirements: str, output: Path, extras: tuple[str, ...] | None = None) -> None:
    """Write the pinned versions of some requirements and all they need, each with its hashes; with
    `extras`, of the project and these extras as well.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, override = Path(folder, "requirements.in"), Path(folder, "override.txt")
        source.write_text(requirements, encoding="utf-8")
        override.write_text(WITHOUT_TORCH, encoding="utf-8")
        words = [*([] if extras is None else [str(ROOT / "pyproject.toml")]), str(source)]
        words += [word for extra in extras or () for word in ("--extra", extra)]
        words += ["--override", str(override), "--constraint", str(ROOT / "constraints.txt")]
        words += ["--generate-hashes", "--no-annotate", "--no-header", "--quiet"]
        words += ["--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28"]
        words += ["--output-file", str(output)]
        subprocess.run([sys.executable, "-m", "uv", "pip", "compile", *words], check=True)


def read_names(path: Path) -> set[str]:
    """Return the names of the packages that a file pins, as the index spells them."""
    names = re.findall(r"^([\w.-]+)(?:\[.*?\])?==", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names}


def leave_out_pins(path: Path, earlier: Path, known: set[str]) -> None:
    """Leave out of a file what an earlier one pins, and have it begin with that one."""
    blocks = re.split(r"^(?=[\w])", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    name_of = re.compile(r"[\w.-]+")
    kept = [
        block
        for block in blocks
        if (name := name_of.match(block)) and re.sub(r"[-_.]+", "-", name[0]).lower() not in known
    ]
    path.write_text(f"-r {earlier.name}\n" + "".join(kept), encoding="utf-8")


def write_all() -> None:
    """Write the five files."""
    parts = "-local", "", "-published", "-dev"
    local, runtime, published, dev = (DEPLOY / f"requirements{part}.txt" for part in parts)
    beam = DEPLOY / "dataflow" / "requirements.txt"
    for path in (local, runtime, published, dev, beam):
        path.unlink(missing_ok=True)  # uv keeps what an earlier file pins
    compile_pins(TO_INSTALL, local, ())
    compile_pins(TO_INSTALL, runtime, RUNTIME_EXTRAS)
    compile_pins("\n".join(["apache-beam[gcp]", *REQUIREMENTS]), beam)
    compile_pins(TO_INSTALL, published, ("published",))
    compile_pins(TO_INSTALL, dev, ("dev",))
    of_local, of_runtime = read_names(local), read_names(runtime)
    leave_out_pins(dev, runtime, of_local | of_runtime)
    leave_out_pins(published, local, of_local)
    leave_out_pins(runtime, local, of_local)


if __name__ == "__main__":
    write_all()
