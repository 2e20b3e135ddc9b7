"""Which texts a model was trained on, exactly or nearly: `trained_on.npy` in a model folder, by
which a later run leaves them out when it compares another model with that one.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from amazon_electra.model.finetuning.examples import fold_text

FILE = "trained_on.npy"
SHINGLE, SKETCH, SHARED = 3, 8, 4
"""Words of a shingle; the smallest hashes of a text's shingles that are kept (Broder 1997); how
many of these two near copies share, which those with half of their shingles in common do."""
MAX_SKETCHED = 200_000
"""Texts whose shingles are kept, 72 bytes each; of more texts only exact copies are known."""


def sketch_texts(texts: Iterable[str]) -> np.ndarray:
    """Return the hash of each text (case and spaces aside) and those of its shingles, uint64
    [texts, 1 + SKETCH]; of a short text 0 stands for those that it lacks.
    """
    rows = []
    for text in texts:
        folded = fold_text(text)
        words = folded.split(" ")
        shingles = {
            _hash(" ".join(words[i : i + SHINGLE])) for i in range(len(words) - SHINGLE + 1)
        }
        smallest = sorted(shingles)[:SKETCH]
        rows.append([_hash(folded), *smallest, *[0] * (SKETCH - len(smallest))])
    return np.array(rows, np.uint64).reshape(-1, 1 + SKETCH)


def _hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "big")


def save_sketches(texts: Sequence[str], folder: Path) -> None:
    """Write the sketches of the texts that a model was trained on to its folder."""
    if len(texts) > MAX_SKETCHED:
        sketches = np.array([[_hash(fold_text(text))] for text in texts], np.uint64)
    else:
        sketches = sketch_texts(texts)
    np.save(folder / FILE, sketches, allow_pickle=False)


def mark_copies(texts: Sequence[str], folder: Path) -> np.ndarray:
    """Return whether the model of a folder was trained on each text or a near copy, bool [n]."""
    known = np.load(folder / FILE, allow_pickle=False)
    sketches = sketch_texts(texts)
    copies = np.isin(sketches[:, 0], known[:, 0])
    rows_of: dict[int, list[int]] = {}
    for row, shingles in enumerate(known[:, 1:].tolist()):
        for one in shingles:
            rows_of.setdefault(one, []).append(row)
    rows_of.pop(0, None)
    for place, shingles in enumerate(sketches[:, 1:].tolist()):
        met = Counter(row for one in shingles for row in rows_of.get(one, ()))
        copies[place] |= bool(met) and max(met.values()) >= SHARED
    return copies
