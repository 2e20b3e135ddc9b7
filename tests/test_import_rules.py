"""The walls of the house: who may import whom, and the size of a file."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_NOT_IMPORT = {
    "beam_jobs": {"torch", "transformers", "prefect", "mlflow", "model", "flows"},
    "model": {"prefect", "apache_beam", "flows", "beam_jobs"},
}
EXCEPTIONS = {("beam_jobs/scoring_job.py", "torch")}
ONLY_IN = {"mlflow": {"model/tracking.py", "model/registry.py"}, "torch_xla": {"model/device.py"}}
LONGEST_FILE = 400

SOURCES = sorted(p for package in ("flows", "beam_jobs", "model") for p in (ROOT / package).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Top-level names of everything a file imports, at any depth of the file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_keeps_the_walls(path):
    name = str(path.relative_to(ROOT))
    names = imported(path)
    forbidden = names & MAY_NOT_IMPORT.get(path.relative_to(ROOT).parts[0], set())
    assert {n for n in forbidden if (name, n) not in EXCEPTIONS} == set()
    assert {library for library, only in ONLY_IN.items() if library in names and name not in only} == set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_has_one_duty(path):
    assert len(path.read_text().splitlines()) <= LONGEST_FILE


def test_no_cupboards():
    assert [p.name for p in SOURCES if any(w in p.stem for w in ("util", "helper", "manager", "common"))] == []
