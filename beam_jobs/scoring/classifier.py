"""The model folder of a worker, local or in a bucket."""

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.command import keep_freed_memory
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import hash_bytes
from amazon_electra.beam_jobs.model_folder.classifier import Classifier
from amazon_electra.beam_jobs.model_folder.config import CONFIG, Folder, ScoringPrecision
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

    def hash_files(own: Folder) -> str:
        names = CONFIG, *own.read_config().list_files(precision)
        hashes = [hash_bytes(own.read_file(name)) for name in names]
        hashes += [hash_files(part) for part, _ in own.list_parts()]
        return hash_bytes(" ".join(hashes).encode())

    return hash_files(open_folder(folder))


def read_profile(folder: str) -> Profile | None:
    """Return the profile of the texts that a model was tested on; None where there is none."""
    file = storage.join_path(folder, PROFILE)
    return Profile.from_json(storage.read_bytes(file)) if storage.exists(file) else None
