"""Writes the package that a remote worker installs: beam_jobs and the few packages it needs."""

import shutil
from importlib.metadata import distributions
from pathlib import Path

REQUIREMENTS = (
    *("aiohttp", "cyclopts", "datasketch", "fsspec", "ftfy", "gcsfs", "isal", "nltk", "numpy"),
    *("onnxruntime", "orjson", "psutil", "py3langid", "pyarrow", "pydantic", "python-calamine"),
    *("s3fs", "scikit-learn", "skops", "tokenizers", "xxhash"),
)
"""Beside apache-beam, which workers have. A test compares them with the package's imports."""

SETUP = """import setuptools

setuptools.setup(
    name="beam-jobs",
    version="{version}",
    python_requires=">=3.11",
    packages=setuptools.find_namespace_packages(include=["amazon_electra*"]),
    package_data={{"amazon_electra.beam_jobs": ["sample/lexicon.json", "*/*.toml"]}},
    install_requires={requirements},
)
"""


def write_package(folder: Path) -> Path:
    """Write the package into an empty folder and return its setup.py, for `--setup_file`."""
    shutil.copytree(
        Path(__file__).parents[1],
        folder / "amazon_electra" / "beam_jobs",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    installed = {one.name.lower(): one.version for one in distributions()}
    pinned = [f"{name}=={installed[name]}" for name in REQUIREMENTS if name in installed]
    setup, version = folder / "setup.py", installed.get("amazon-electra", "0")
    setup.write_text(SETUP.format(version=version, requirements=pinned), encoding="utf-8")
    return setup
