"""What `pip install` of this project brings is what a checkout has."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from amazon_electra.beam_jobs.core.plugins import VARIABLE

ROOT = Path(__file__).parent.parent
PACKAGES = ("flows", "beam_jobs", "model")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    tmp_path = tmp_path_factory.mktemp("wheel")
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    links = "deploy/package"
    shutil.copytree(ROOT / links, source / links, symlinks=True)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    build = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(tmp_path)]
    subprocess.run([*build, str(source)], check=True)
    [wheel] = tmp_path.glob("*.whl")
    return wheel


def test_the_wheel_has_every_module_and_every_shipped_study(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    files = [
        path
        for name in PACKAGES
        for path in (ROOT / name).rglob("*")
        if path.suffix in {".py", ".yaml", ".json", ".j2"}
    ]
    names = {f"amazon_electra/{path.relative_to(ROOT)}" for path in files}
    assert {*names, "amazon_electra/__init__.py"} - held == set()
    assert {Path(name).name for name in held if "/licenses/" in name} == {"LICENSE", "NOTICE"}


def test_the_wheel_works_beside_modules_of_the_same_names(wheel, tmp_path):
    """A user's own model.py and flows.py are neither imported nor in the way of a run's
    processes.
    """
    site, here = tmp_path / "site", tmp_path / "here"
    zipfile.ZipFile(wheel).extractall(site)
    here.mkdir()
    for name in ("model", "flows", "beam_jobs"):
        (here / f"{name}.py").write_text("raise SystemExit('a module of the user was imported')\n")
    program = (
        "import amazon_electra as ae\n"
        "print(ae.__file__, [getattr(ae, name) for name in ae.__all__])\n"
        "try:\n    ae.run('absent.csv', store='store')\n"
        "except ae.UserError as mistake:\n    print('mistake', mistake)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=here,
        env=os.environ | {"PYTHONPATH": str(site), VARIABLE: ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(site / "amazon_electra"))
    assert "absent.csv" in done.stdout.rpartition("mistake")[2]
