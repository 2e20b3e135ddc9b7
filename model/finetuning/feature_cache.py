"""Keep features in a folder, so that the seeds, rates and arms of a study tokenize a text once.

The name of a file is a hash of all that decides its content: the arrays of packed features.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from amazon_electra.beam_jobs.core.files import atomic_path
from amazon_electra.model.finetuning.examples import Example
from amazon_electra.model.finetuning.features import Featurizer, PackedFeatures

FORMAT = 3
MAX_EXAMPLES = 200_000
"""Examples whose features are kept, at most: 60 MB where texts have 100 tokens."""
FOLDER_BYTES = 1 << 30
"""Size of the folder, states included; the files that were unused for longest go first."""


def load_features(
    featurizer: Featurizer, examples: Sequence[Example], cache: Path | None
) -> PackedFeatures:
    """Return the features of the examples from the folder `cache`, or make and keep them there.

    Without a folder, or where there are more than MAX_EXAMPLES, none are kept.
    """
    if cache is None or not 0 < len(examples) <= MAX_EXAMPLES:
        return PackedFeatures.pack(featurizer.stream_features(examples))
    file = cache / f"features-{_hash_sources(featurizer, examples)}.safetensors"
    if kept := read_arrays(file):
        return PackedFeatures(kept)
    features = PackedFeatures.pack(featurizer.stream_features(examples))
    keep_arrays(features.arrays, file)
    return features


def read_arrays(file: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file of the cache; none where it is not there, or damaged."""
    try:
        arrays = load_file(file)
        os.utime(file)
    except (OSError, SafetensorError):
        return {}
    return arrays


def keep_arrays(arrays: Mapping[str, np.ndarray], file: Path) -> None:
    """Write a file of the cache, in the place of what was unused for longest."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(file) as part:
        save_file(dict(arrays), part)
    _make_room(file.parent)


def _make_room(cache: Path) -> None:
    """Remove the files that were unused for longest while all are larger than FOLDER_BYTES."""
    found = [(file.stat(), file) for file in cache.glob("*.safetensors")]
    size = sum(state.st_size for state, _ in found)
    for state, file in sorted(found, key=lambda one: one[0].st_mtime):
        if size <= FOLDER_BYTES:
            return
        file.unlink(missing_ok=True)
        size -= state.st_size


def _hash_sources(featurizer: Featurizer, examples: Sequence[Example]) -> str:
    """Return a hash of the tokenizer, the settings, and what features read of the examples."""
    featurizer.tokenizer.no_truncation()  # which the last call has set, and the next one sets
    settings = [featurizer.shape, featurizer.max_length, featurizer.stride]
    digest = hashlib.blake2b(json.dumps([FORMAT, *settings]).encode(), digest_size=16)
    digest.update(featurizer.tokenizer.to_str().encode())
    for e in examples:
        read = [e.text, e.pair, e.label, e.words, e.tags, e.choices, e.answers]
        digest.update(json.dumps(read).encode())
    return digest.hexdigest()
