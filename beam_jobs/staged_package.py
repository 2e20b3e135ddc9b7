"""What a remote worker installs: beam_jobs alone, with the few packages it needs, and neither torch nor a flow server.

Beam builds a source distribution of `--setup_file` and installs it on every worker. The project's own pyproject.toml
would install all of the project there; this writes a package of beam_jobs only, pinned to the versions running here.
"""

import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

REQUIREMENTS = (
    "datasketch",
    "fsspec",
    "gcsfs",
    "isal",
    "nltk",
    "numpy",
    "orjson",
    "psutil",
    "py3langid",
    "pyarrow",
    "s3fs",
    "tokenizers",
    "xxhash",
)
"""Beside apache-beam, which the workers' container has. A test compares them with the package's imports."""

SETUP = """import setuptools

setuptools.setup(
    name="beam-jobs",
    version="{version}",
    python_requires=">=3.11",
    packages=setuptools.find_packages(),
    install_requires={requirements},
)
"""


def write(folder: Path) -> Path:
    """Writes the package into an empty folder and returns its setup.py, for `--setup_file`."""
    shutil.copytree(Path(__file__).parent, folder / "beam_jobs", ignore=shutil.ignore_patterns("__pycache__"))
    pinned = [f"{name}=={installed}" for name in REQUIREMENTS if (installed := version_of(name))]
    setup = folder / "setup.py"
    setup.write_text(SETUP.format(version=version_of("amazon-electra") or "0", requirements=pinned))
    return setup


def version_of(package: str) -> str | None:
    """None where it is not installed here: then the job does without it there too."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
