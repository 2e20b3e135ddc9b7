"""The model folder of a worker, local or in a bucket."""

from dataclasses import replace

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.command import keep_freed_memory
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import hash_bytes
from amazon_electra.beam_jobs.model_folder.classifier import Classifier
from amazon_electra.beam_jobs.model_folder.config import CONFIG, QUANTIZED, Folder, ScoringPrecision
from amazon_electra.beam_jobs.model_folder.drift import PROFILE, Profile


def open_folder(folder: str) -> Folder:
    return Folder(
        lambda name: storage.read_bytes(storage.join_path(folder, name)),
        lambda why: UserError(why, "model", folder),
    )


def load_classifier(folder: str, precision: ScoringPrecision) -> Classifier:
    """Load a model folder in one thread, and try it; UserError for what cannot score."""
    keep_freed_memory()
    return Classifier.load(open_folder(folder), precision, threads=1)


def hash_model(folder: str, precision: ScoringPrecision) -> str:
    """Return a digest of all that decides the probabilities; UserError for no such model."""

    def refuse_int8(why: str) -> UserError:
        return UserError(f"{folder} {why}; leave it out", "precision", "int8")

    def hash_files(own: Folder) -> str:
        hashes = [hash_bytes(own.read_file(CONFIG))]
        for name in own.read_config().list_files(precision):
            reader = replace(own, fail=refuse_int8) if name == QUANTIZED else own
            hashes.append(hash_bytes(reader.read_file(name)))
        hashes += [hash_files(part) for part, _ in own.list_parts()]
        return hash_bytes(" ".join(hashes).encode())

    opened = open_folder(folder)
    if precision == "int8" and opened.read_config().amazon_electra.kind in ("words", "skops"):
        raise refuse_int8("is no network")
    return hash_files(opened)


def read_profile(folder: str) -> Profile | None:
    """Return the profile of the texts that a model was tested on; None where there is none."""
    file = storage.join_path(folder, PROFILE)
    return Profile.from_json(storage.read_bytes(file)) if storage.exists(file) else None
