"""Which texts a model was trained on, exactly or nearly: they are left out where it is compared
with another model, or with the labels of a dump.
"""

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from io import BytesIO
from pathlib import Path

import numpy as np

from amazon_electra.beam_jobs.core import storage

FILE = "trained_on.npy"  # of a model folder
SHINGLE, SKETCH, SHARED = 3, 8, 4
"""Words of a shingle; the smallest hashes of a text's shingles that are kept (Broder 1997); how
many of these two near copies share, which those with half of their shingles in common do."""
MAX_SKETCHED = 200_000  # texts whose shingles are kept; of more only exact copies are known


@lru_cache(maxsize=2)
def fold_text(text: str) -> str:
    return " ".join(text.casefold().split())


def sketch_texts(texts: Iterable[str]) -> np.ndarray:
    """Return the hash of each text (case and spaces aside) and those of its shingles, uint64
    [texts, 1 + SKETCH]; 0 where a short text has fewer.
    """
    rows = []
    for text in texts:
        folded = fold_text(text)
        words = folded.split(" ")
        shingles = (words[i : i + SHINGLE] for i in range(len(words) - SHINGLE + 1))
        smallest = sorted({_hash(" ".join(one)) for one in shingles})[:SKETCH]
        rows.append([_hash(folded), *smallest, *[0] * (SKETCH - len(smallest))])
    return np.array(rows, np.uint64).reshape(-1, 1 + SKETCH)


def _hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "big")


def save_sketches(texts: Sequence[str], folder: Path) -> None:
    if len(texts) > MAX_SKETCHED:
        sketches = np.array([[_hash(fold_text(text))] for text in texts], np.uint64)
    else:
        sketches = sketch_texts(texts)
    np.save(folder / FILE, sketches, allow_pickle=False)


class TrainedTexts:
    """The texts that the model of a folder was trained on."""

    def __init__(self, sketches: np.ndarray) -> None:
        shingles = sketches[:, 1:].ravel()
        rows = np.repeat(np.arange(len(sketches)), sketches.shape[1] - 1)
        order = np.argsort(shingles, kind="stable")
        order = order[shingles[order] > 0]
        self.exact, self.shingles, self.rows = sketches[:, 0], shingles[order], rows[order]

    def mark_copies(self, texts: Sequence[str]) -> np.ndarray:
        """Return whether each text or a near copy is among them, bool [n]."""
        sketches = sketch_texts(texts)
        copies = np.isin(sketches[:, 0], self.exact)
        first = np.searchsorted(self.shingles, sketches[:, 1:])
        end = np.searchsorted(self.shingles, sketches[:, 1:], "right")
        for place in np.flatnonzero(~copies):
            met = [self.rows[a:b] for a, b in zip(first[place], end[place], strict=True)]
            shared = np.unique(np.concatenate(met), return_counts=True)[1]
            copies[place] = shared.max(initial=0) >= SHARED
        return copies


@lru_cache(maxsize=4)
def load_trained(folder: str) -> TrainedTexts | None:
    """Return the texts that a model was trained on; None where its folder does not say."""
    file = storage.join_path(folder, FILE)
    if not storage.exists(file):
        return None
    return TrainedTexts(np.load(BytesIO(storage.read_bytes(file)), allow_pickle=False))
