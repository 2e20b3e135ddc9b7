"""What `pip install` of this project brings is what a checkout has."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("flows", "beam_jobs", "model")


def test_the_wheel_has_every_module_and_every_shipped_study(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*build, "--wheel-dir", str(tmp_path), str(source)], check=True)
    [wheel] = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    files = [
        path
        for name in PACKAGES
        for path in (ROOT / name).rglob("*")
        if path.suffix in {".py", ".yaml", ".json", ".j2"}
    ]
    names = {
        str(path.relative_to(ROOT)).replace("flows/api/amazon_electra", "amazon_electra")
        for path in files
    }
    assert names - held == set()
    assert {Path(name).name for name in held if "/licenses/" in name} == {"LICENSE", "NOTICE"}
