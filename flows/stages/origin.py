"""Data and models made elsewhere, and the published encoder that pre-training starts from, loaded
once into the store: a folder known by its files, a name on the hub by its commit, a package by its
version.
"""

import json
import re
from pathlib import Path
from typing import Any

from pydantic import Field

from amazon_electra.beam_jobs.core.errors import UserError, refuse
from amazon_electra.beam_jobs.core.files import hash_bytes
from amazon_electra.beam_jobs.core.settings import Settings
from amazon_electra.flows.configuration.form import DEFAULT_START, LAST, Pretraining
from amazon_electra.flows.store.stage import ExistingStage, Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.encoders import known
from amazon_electra.model.encoders.config import count_positions, read_config
from amazon_electra.model.encoders.known import read_card
from amazon_electra.model.encoders.places import (
    FORMS,
    find_in_package,
    find_kind,
    name_place,
    parse_place,
)

TITLE = "origin "
COMMIT = re.compile(r"[0-9a-f]{40}")
START = "pretraining.start_from"
CONFIG = "config.json"
# files that say how a folder came about, not what it holds
INCIDENTAL = {"log.txt", "metrics.jsonl", "manifest.json", "stage.json", "README.md"}
NAMES = {DEFAULT_START: "MiniLM", LAST: "last run"}


class ExternalConfig(Settings):
    """What was made elsewhere, by its name on the hub or by the digest of its files."""

    name: str = ""
    content: str = ""


class External(Stage):
    """A file, a folder or a name on the hub; there is nothing to make. `result` has the path."""

    name, version, Config = "external", 2, ExternalConfig
    has_job = False

    def locate(self, store: Store, on_engine: bool = False) -> str:
        return str(self.result["path"])


def build_external_stage(place: str, store: Store) -> External:
    """Return the stage of a file, a folder or a name on the hub."""
    path = Path(place).expanduser()
    if not path.exists():
        return External(ExternalConfig(name=place), result={"path": place})
    digests = {
        "" if file == path else str(file.relative_to(path)): store.digest(file)
        for file in list_place_files(path)
    }
    content = hash_bytes(json.dumps(digests, sort_keys=True).encode())
    return External(ExternalConfig(content=content), result={"path": str(path.resolve())})


def list_place_files(path: Path) -> list[Path]:
    """Return the files that decide what a file or folder is, in order of name."""
    if path.is_file():
        return [path]
    found = (file for file in path.rglob("*") if file.is_file() and file.name not in INCIDENTAL)
    parts = {file: file.relative_to(path).parts for file in found}
    return sorted(f for f in parts if f.name[0] != "." and "checkpoints" not in parts[f])


def build_start_stage(chosen: Pretraining, store: Store, dump: Stage | None = None) -> Stage | None:
    """Return the encoder that a run on this dump starts from; None where it starts from nothing."""
    place = chosen.start_from
    if place == LAST:
        return build_origin_stage(find_last_encoder(dump, store), store, name=NAMES[LAST])
    return build_origin_stage(place, store, chosen.start_generator_from) if place else None


def find_last_encoder(dump: Stage | None, store: Store) -> str:
    """Return the encoder of the newest run of another dump; UserError where there is none."""
    known = {made["fingerprint"]: made for made in store.list_manifests()}
    for made in reversed(known.values()):
        if made["stage"] != "report" or "encoder" not in made["inputs"]:
            continue
        lineage = {one["fingerprint"]: one for _, one in store.trace_lineage(made, known)}
        encoder = lineage.get(made["inputs"]["encoder"]["fingerprint"])
        if encoder is None or (dump and dump.fingerprint in lineage):
            continue
        folder = store.fetch(ExistingStage(encoder["stage"], encoder["fingerprint"]))
        for name in (Origin.inner, "discriminator"):
            if (folder / name / CONFIG).is_file():
                return str(folder / name)
    raise UserError(f"no run of another dump in {store.address}", START, LAST)


class OriginConfig(Settings):
    """A published encoder, identified by digests, a commit or a version."""

    source: dict[str, str] = Field(default={})
    generator: dict[str, str] = Field(default={})
    """Of an ELECTRA, where it is named."""


class Origin(Stage):
    """A published encoder → a folder that every job loads. `result` has the places to load from."""

    name, version, Config = "origin", 6, OriginConfig
    headline = ("layers", "hidden", "parameters", "vocabulary_size")
    inner = "encoder"

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.model.origin import load_origin

        generator = self.result.get("generator") or None
        return load_origin(self.result["place"], folder / self.inner, generator)


def build_origin_stage(
    place: str, store: Store, generator: str | None = None, name: str = ""
) -> Origin:
    """Return the stage that loads a published encoder, of an ELECTRA with its generator; reports
    call it `name`, or by the last part of the place's name.
    """
    source, result = _pin_place(place, store, START)
    name = name or NAMES.get(place) or result["name"]
    of_generator = dict[str, str]()
    if generator:
        of_generator, its = _pin_place(generator, store, "pretraining.start_generator_from")
        result["generator"] = its["place"]
    config = OriginConfig(source=source, generator=of_generator)
    return Origin(config, result=result, title=f"{TITLE}{name}")


def _pin_place(place: str, store: Store, field: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Return what decides the stage of a place; and its name for the job, as exact as it can be,
    with what config.json and card say where they lie in a folder of this machine.
    """
    kind = find_kind(place)
    if kind is None:
        raise UserError(f"not a published encoder: write {FORMS}", field, place)
    with name_place(field, place):
        if kind == "folder":
            path = Path(place).expanduser().resolve()
            known = describe_folder(path)
            content = build_external_stage(str(path), store).config.content
            return {"content": content}, {"place": str(path), "name": path.name, **known}
        parts = parse_place(kind, place)
        name, revision = parts["name"], parts.get("revision") or "main"
        last = name.rpartition("/")[2]
        if kind == "package":
            found = find_in_package(name)
            source = {"package": found.name, "version": found.version or ""}
            return source, {"place": place, "name": last, **describe_folder(found.folder)}
        commit = revision if COMMIT.fullmatch(revision) else find_commit(name, revision)
        return {"name": name, "revision": commit}, {"place": f"{name}@{commit}", "name": last}


def describe_folder(folder: Path) -> dict[str, Any]:
    """Return what is known of an encoder in a folder before it is loaded."""
    return {"max_positions": count_positions(read_config(folder)), **read_card(folder)}


def get_name(origin: Stage) -> str:
    """Return what reports call a published encoder."""
    return origin.label.removeprefix(TITLE)


def describe_origin(store: Store, origin: Stage) -> dict[str, Any]:
    """Return what is known of an encoder, before it is loaded by its files on this machine."""
    made = store.manifest(origin)
    return {**(made["result"] if made else origin.result), "name": get_name(origin)}


def warn_of_languages(store: Store, origin: Stage, corpus: Stage) -> str:
    """Return a line where many reviews of a corpus, once it is made, are in a language that an
    encoder does not read.
    """
    made = store.manifest(corpus)
    counts = made["result"].get("language_sample", {}) if made else {}
    return known.warn_of_languages(describe_origin(store, origin), counts)


def find_commit(name: str, revision: str) -> str:
    """Return the commit that a revision stands for: in this machine's cache, or else on the hub."""
    from huggingface_hub import HfApi, try_to_load_from_cache

    way = f"where there is a network, hf download {name} --local-dir DIR"
    why = f"no folder, not in this machine's cache, and the hub does not name it ({{}}); {way}"
    with refuse(Exception, message=why):
        cached = try_to_load_from_cache(name, CONFIG, revision=revision)
        if isinstance(cached, str):
            return Path(cached).parent.name
        return str(HfApi().model_info(name, revision=revision, timeout=10).sha)
