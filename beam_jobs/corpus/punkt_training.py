"""Trains Punkt, which finds the ends of sentences, on a sample of the dump."""

import json
from typing import Any

from beam_jobs.core import storage
from beam_jobs.corpus.folders import Folders
from beam_jobs.text import sentences


def write_punkt(counts: list[dict[str, Any]], folders: Folders, punkt: str | None) -> str:
    """Write punkt.json and return its content: the parameters in `punkt`, or else trained ones.

    They are trained on the samples of all units, in the order of the texts' hashes, each text once.
    """
    if punkt:
        parameters = sentences.encode_punkt(sentences.read_punkt(punkt))
    else:
        texts: dict[str, str] = {}
        for unit in counts:
            path = storage.join_path(folders.prepared, f"{unit['unit']}.sample")
            texts |= dict(json.loads(storage.read_bytes(path)))
        parameters = sentences.encode_punkt(
            sentences.train_punkt([texts[key] for key in sorted(texts)])
        )
    storage.write_bytes(storage.join_path(folders.output, "punkt.json"), parameters.encode())
    return parameters
