"""Arrays that arms compute of texts and keep for others: states and logits."""

import os
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from amazon_electra.beam_jobs.core.files import atomic_path

FOLDER_BYTES = 1 << 30
"""Size of the cache; the files that were unused for longest go first."""


def read_arrays(file: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file of the cache; none where it is not there, or damaged."""
    try:
        arrays = load_file(file)
        os.utime(file)
    except (OSError, SafetensorError):
        return {}
    return arrays


def keep_arrays(arrays: dict[str, np.ndarray], file: Path) -> None:
    """Write a file of the cache, in the place of those that were unused for longest."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(file) as part:
        save_file(arrays, part)
    found = [(other.stat(), other) for other in file.parent.glob("*.safetensors")]
    size = sum(state.st_size for state, _ in found)
    for state, other in sorted(found, key=lambda one: one[0].st_mtime):
        if size <= FOLDER_BYTES:
            return
        other.unlink(missing_ok=True)
        size -= state.st_size
