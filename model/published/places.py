"""Finds a published model wherever it is: a folder, the hub, MLflow's registry or a package."""

import importlib.metadata
import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path

from beam_jobs.job.errors import TransientError
from model.published.architecture import Fail
from model.published.hub import download_model
from model.published.place_forms import parse_place

PACKAGE, REGISTRY = "package:", "models:/"
DESCRIBED_BY = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "README.md",
]
SAFE_WEIGHTS = ["model.safetensors", "model-*-of-*.safetensors"]
PICKLED_WEIGHTS = ["pytorch_model.bin"]
PATTERNS = [*DESCRIBED_BY, *SAFE_WEIGHTS], PICKLED_WEIGHTS
"""What is downloaded: weights as safetensors, pickled ones only where there are no others."""


@dataclass(frozen=True)
class Found:
    """A transformers folder, and what it is called where it came from."""

    folder: Path
    name: str
    revision: str | None = None
    """Commit on the hub."""
    version: str | None = None
    """Of a package or a registered model."""


def find_published(place: str, scratch: Path, fail: Fail) -> Found:
    """Return the folder of a published model; what is copied from MLflow goes to `scratch`."""
    if place.startswith(PACKAGE):
        return find_in_package(place.removeprefix(PACKAGE), fail)
    if place.startswith(REGISTRY):
        return copy_from_registry(place, scratch, fail)
    if Path(place).is_dir():
        return Found(Path(place), Path(place).resolve().name)
    if parse_place("hub", place) and not Path(place).exists():
        parts = parse_place("hub", place)
        folder = download_model(parts["name"], parts["revision"] or None, PATTERNS, fail)
        return Found(folder, parts["name"], revision=folder.name)
    raise fail(
        "no such folder; give a folder, a hub name (org/name or org/name@revision), "
        f"{REGISTRY}name@alias or {PACKAGE}MODULE"
    )


def is_named(place: str) -> bool:
    """Return whether a place has to be looked up first, because it is no path on this disk."""
    if place.startswith((PACKAGE, REGISTRY)):
        return True
    path = Path(place)
    is_there = path.exists() or path.with_name(path.name + ".index").exists()
    return not is_there and bool(parse_place("hub", place))


def find_in_package(name: str, fail: Fail) -> Found:
    """Return the one transformers folder in an installed package, none of whose code is run."""
    module = re.sub(r"[-.]", "_", name)
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise fail(f"no package {module} is installed here: pip install {name.replace('_', '-')}")
    folder = find_model_folder([Path(place) for place in spec.submodule_search_locations], fail)
    distributions = importlib.metadata.packages_distributions().get(module, [])
    version = importlib.metadata.version(distributions[0]) if distributions else None
    return Found(folder, distributions[0] if distributions else module, version=version)


def find_model_folder(roots: list[Path], fail: Fail) -> Path:
    """Return the one folder below that holds a config.json and weights."""
    found = sorted(
        {
            config.parent
            for root in roots
            for config in root.rglob("config.json")
            for pattern in (*SAFE_WEIGHTS, *PICKLED_WEIGHTS)
            if any(config.parent.glob(pattern))
        }
    )
    if len(found) != 1:
        several = ", ".join(str(folder) for folder in found)
        raise fail(
            f"several models are there: {several}; give the folder of one"
            if found
            else "no folder with config.json and model.safetensors is there"
        )
    return found[0]


def copy_from_registry(place: str, scratch: Path, fail: Fail) -> Found:
    """Return a copy of a registered model's folder; MLFLOW_TRACKING_URI names the registry."""
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        raise fail("set MLFLOW_TRACKING_URI to the address of MLflow")
    parts = parse_place("registry", place)
    if not parts:
        raise fail(f"write {REGISTRY}name@alias or {REGISTRY}name/3")
    name = parts["name"]
    from model.tracking.registry import Registry, RegistryAway

    try:
        folder, number = Registry(uri, name).copy_model(parts["alias"], parts["version"], scratch)
    except RegistryAway as away:
        raise TransientError(str(fail(str(away)))) from None
    except ValueError as error:
        raise fail(str(error)) from None
    return Found(find_model_folder([folder], fail), name, version=number)
