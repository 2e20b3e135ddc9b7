"""Keep features in a folder, so that the seeds, rates and arms of a study tokenize a text once.

The name of a file is a hash of all that decides its content. It holds the numbers of the features
one behind the other; the smallest types are the featurizer's own.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from beam_jobs.core.files import atomic_path
from model.finetuning.examples import Example
from model.finetuning.features import Feature, Featurizer

FORMAT = 1
MOST_EXAMPLES = 200_000
"""Of a file; 60 MB where texts have 100 tokens. More are tokenized again."""
FOLDER_BYTES = 1 << 30
"""Of all files, those of states too (model/baselines/states.py); beyond it those go that were
unused for longest.
"""


def load_features(
    featurizer: Featurizer, examples: Sequence[Example], cache: Path | None
) -> Iterable[Feature]:
    """Return the features of the examples from the folder `cache`, or make and keep them there.

    Without a folder, or where there are more than MOST_EXAMPLES, they are made as they are read.
    """
    if cache is None or not 0 < len(examples) <= MOST_EXAMPLES:
        return featurizer.stream_features(examples)
    file = cache / f"features-{_hash_sources(featurizer, examples)}.safetensors"
    if kept := read_arrays(file):
        return _unpack_features(kept)
    features = featurizer(examples)
    keep_arrays(_pack_features(features), file)
    return features


def read_arrays(file: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file of the cache; none where it is not there, or damaged."""
    try:
        arrays = load_file(file)
        os.utime(file)
    except (OSError, SafetensorError):
        return {}
    return arrays


def keep_arrays(arrays: dict[str, np.ndarray], file: Path) -> None:
    """Write a file of the cache, in the place of what was unused for longest."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(file) as part:
        save_file(arrays, part)
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


def _pack_features(features: Sequence[Feature]) -> dict[str, np.ndarray]:
    """Return one array for each kind of number, and one of how many belong to each feature."""
    targets = [np.atleast_1d(f.target) for f in features]
    lengths = [len(f.target) if isinstance(f.target, list) else -1 for f in features]
    rows = [row for f in features for row in f.ids]
    return {
        "examples": np.array([f.example for f in features], np.int64),
        "rows": np.array([len(f.ids) for f in features], np.int64),
        "tokens": np.array([len(row) for row in rows], np.int64),
        "ids": np.concatenate(rows),
        "types": np.concatenate([row for f in features for row in f.types]),
        "targets": np.concatenate(targets),
        "target_lengths": np.array(lengths, np.int64),
        "offsets": np.concatenate([f.offsets for f in features]),
        "offset_lengths": np.array([len(f.offsets) for f in features], np.int64),
        "words": np.concatenate([f.words for f in features]),
        "word_lengths": np.array([len(f.words) for f in features], np.int64),
    }


def _unpack_features(arrays: dict[str, np.ndarray]) -> list[Feature]:
    """Return the features that `_pack_features` was given."""
    ids, types = (_cut(arrays[name], arrays["tokens"]) for name in ("ids", "types"))
    targets = _cut(arrays["targets"], np.abs(arrays["target_lengths"]))
    offsets = _cut(arrays["offsets"], arrays["offset_lengths"])
    words = _cut(arrays["words"], arrays["word_lengths"])
    ends = np.concatenate([[0], np.cumsum(arrays["rows"])]).tolist()
    lists = (arrays["target_lengths"] >= 0).tolist()
    return [
        Feature(
            example,
            ids[first:last],
            types[first:last],
            targets[i].tolist() if lists[i] else targets[i].tolist()[0],
            offsets[i],
            words[i],
        )
        for i, (example, (first, last)) in enumerate(
            zip(arrays["examples"].tolist(), pairwise(ends), strict=True)
        )
    ]


def _cut(array: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """Return the parts of an array, which lie one behind the other."""
    ends = np.concatenate([[0], np.cumsum(lengths)]).tolist()
    return [array[first:last] for first, last in pairwise(ends)]
