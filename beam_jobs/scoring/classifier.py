"""The model folder of a worker, local or in a bucket."""

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.command import keep_freed_memory
from amazon_electra.beam_jobs.core.drift import PROFILE, Profile
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import hash_bytes
from amazon_electra.beam_jobs.model_folder import config as model_config
from amazon_electra.beam_jobs.model_folder.classifier import Classifier
from amazon_electra.beam_jobs.model_folder.config import (
    CONFIG,
    QUANTIZED,
    Fail,
    ModelConfig,
    Read,
    ScoringPrecision,
    read_file,
    read_parts,
)


def open_folder(folder: str) -> tuple[Read, Fail]:
    """Return what reads the files of a folder, and what makes its errors."""

    def fail(why: str) -> UserError:
        return UserError(why, "model", folder)

    return lambda name: storage.read_bytes(storage.join_path(folder, name)), fail


def load_classifier(folder: str, precision: ScoringPrecision) -> Classifier:
    """Load a model folder in one thread, and try it; UserError for what cannot score."""
    keep_freed_memory()
    read, fail = open_folder(folder)
    return Classifier.load(read, precision, threads=1, fail=fail)


def read_config(folder: str) -> ModelConfig:
    """Return the configuration of a model folder; UserError where it is none."""
    return model_config.read_config(*open_folder(folder))


def hash_model(folder: str, precision: ScoringPrecision) -> str:
    """Return a digest of all that decides the probabilities; UserError for no such model."""
    read, fail = open_folder(folder)
    config = model_config.read_config(read, fail)

    def fail_int8(why: str) -> UserError:
        return UserError(f"{folder} {why}; leave it out", "precision", "int8")

    if precision == "int8" and config.amazon_electra.kind in ("words", "skops"):
        raise fail_int8("is no network")

    def hash_files(read: Read, fail: Fail, config: ModelConfig) -> str:
        hashes = [hash_bytes(read_file(read, CONFIG, fail))]
        for name in config.list_files(precision):
            own_fail = fail_int8 if name == QUANTIZED else fail
            hashes.append(hash_bytes(read_file(read, name, own_fail)))
        for read_part, fail_part, own, _ in read_parts(read, config, fail):
            hashes.append(hash_files(read_part, fail_part, own))
        return hash_bytes(" ".join(hashes).encode())

    return hash_files(read, fail, config)


def read_profile(folder: str) -> Profile | None:
    """Return the profile of the texts that a model was tested on; None where there is none."""
    file = storage.join_path(folder, PROFILE)
    return Profile.from_json(storage.read_bytes(file)) if storage.exists(file) else None
