"""What Dataflow's workers install: all that beam_jobs imports, and nothing else of the project."""

import ast
import runpy
import subprocess
import sys
import tarfile
from pathlib import Path
from unittest.mock import patch

from amazon_electra.beam_jobs.engine import staged_package

BEAM_JOBS = Path(staged_package.__file__).parents[1]
PACKAGE_OF = {
    "apache_beam": None,
    "amazon_electra": None,
    "google": None,
    "grpc": None,
    "python_calamine": "python-calamine",
    "sklearn": "scikit-learn",
    "typing_extensions": None,
    "yaml": None,
}  # apache-beam brings protobuf and grpcio, pydantic typing_extensions; yaml: for a person


def imports() -> set[str]:
    names = set()
    for path in BEAM_JOBS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split(".")[0])
    return names - set(sys.stdlib_module_names)


def test_the_requirements_are_the_imports():
    needed = {PACKAGE_OF.get(name, name) for name in imports()} - {None}
    needed |= {"gcsfs", "s3fs"}  # fsspec loads them for gs:// and s3://
    assert needed <= set(staged_package.REQUIREMENTS)
    indirect = {"aiohttp", "isal", "orjson", "scikit-learn"}
    assert set(staged_package.REQUIREMENTS) - needed <= indirect


def test_the_package_is_all_of_beam_jobs_and_nothing_else(tmp_path):
    """A worker installs from the source distribution: what it leaves out is missing there."""
    setup = staged_package.write_package(tmp_path)
    with patch("setuptools.setup") as called:
        runpy.run_path(str(setup), {"__file__": str(setup)})
    requirements = called.call_args.kwargs["install_requires"]
    assert all("==" in requirement for requirement in requirements)
    assert {p.name for p in tmp_path.iterdir()} == {"amazon_electra", "setup.py"}
    subprocess.run([sys.executable, setup, "-q", "sdist"], cwd=tmp_path, check=True)
    [archive] = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    data = {path for path in BEAM_JOBS.rglob("*") if path.suffix in {".py", ".json"}}
    needed = {f"amazon_electra/{path.relative_to(BEAM_JOBS.parent)}" for path in data}
    assert needed - names == set()
