"""No leak: a review whose text is in an evaluation file, exactly or nearly, never reaches the corpus.

Exactly: equal when case and white space are folded. Nearly: of the runs of 8 words (letters and digits, folded) of the
shorter of the two texts at least half are in the other one. Evaluation texts of fewer than 8 words are withheld exactly
only: "i love it" is in half of all reviews. GPT-3 took 13 words and any overlap (Brown et al. 2020, appendix C), which
on reviews, often shorter than 13 words, would miss most copies.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import xxhash

from beam_jobs import personal_data, storage
from beam_jobs.cleaning import Cleaning, clean
from beam_jobs.word_runs import AT_ONCE, run_hashes

RUN_WORDS = 8
SHARE = 0.5
TABLE_BITS = 24


class Withheld:
    """The evaluation texts, as hashes."""

    def __init__(self, exact: set[bytes], runs: np.ndarray, texts: np.ndarray, sizes: np.ndarray) -> None:
        self.exact = exact  # 16-byte hashes of folded texts
        self._runs = runs  # uint64, sorted: hashes of runs
        self._texts = texts  # uint32: the evaluation text of each
        self._sizes = sizes  # uint32: distinct runs of each evaluation text
        self._table = np.zeros(1 << TABLE_BITS, dtype=bool)
        self._table[runs >> np.uint64(64 - TABLE_BITS)] = True

    def near(self, texts: list[str]) -> np.ndarray:
        """For each text, whether it overlaps with an evaluation text."""
        return np.concatenate([self._near(texts[i : i + AT_ONCE]) for i in range(0, len(texts), AT_ONCE)])

    def _near(self, texts: list[str]) -> np.ndarray:
        near = np.zeros(len(texts), dtype=bool)
        runs, owners = run_hashes(texts, RUN_WORDS)
        if not len(runs) or not len(self._runs):
            return near
        maybe = self._table[runs >> np.uint64(64 - TABLE_BITS)]  # a look-up of one byte spares most binary searches
        candidates, their_owners = runs[maybe], owners[maybe]
        places = np.minimum(np.searchsorted(self._runs, candidates), len(self._runs) - 1)
        known = self._runs[places] == candidates
        found: dict[int, set[int]] = defaultdict(set)
        for run, owner in zip(candidates[known].tolist(), their_owners[known].tolist(), strict=True):
            found[owner].add(run)
        sizes = np.bincount(owners, minlength=len(texts))
        for owner, shared in found.items():
            near[owner] = self._overlaps(shared, int(sizes[owner]))
        return near

    def _overlaps(self, shared: Iterable[int], mine: int) -> bool:
        counts: Counter[int] = Counter()
        for run in shared:
            low = np.searchsorted(self._runs, np.uint64(run), side="left")
            high = np.searchsorted(self._runs, np.uint64(run), side="right")
            counts.update(self._texts[low:high].tolist())
        return any(n >= SHARE * min(mine, int(self._sizes[text])) for text, n in counts.items())

    def save(self, path: str) -> None:
        with storage.atomic_path(path) as temporary, open(temporary, "wb") as file:
            exact = np.frombuffer(b"".join(sorted(self.exact)), dtype=np.uint8)
            np.savez(file, exact=exact, runs=self._runs, texts=self._texts, sizes=self._sizes)


def hash_of(text: str) -> bytes:
    """16 bytes, equal for texts equal but for case and white space; of text that is clean already."""
    return xxhash.xxh3_128_digest(text.casefold().encode())


def build(texts: Iterable[str]) -> Withheld:
    """From the texts of evaluation files, in every form that a job may have given the same text in a review.

    Takes 5 KB of memory for a review, 1 of which is kept (tests/bench/withholding_memory.py).
    """
    distinct = sorted({form for raw in texts for form in forms(raw)})
    runs, owners = distinct_runs(distinct)
    order = np.argsort(runs, kind="stable")
    sizes = np.bincount(owners, minlength=len(distinct)).astype(np.uint32)
    return Withheld({hash_of(text) for text in distinct}, runs[order], owners[order], sizes)


def distinct_runs(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Each run of a text once (uint64), and the index of its text (uint32), by text and then by run."""
    parts = [(np.empty(0, np.uint64), np.empty(0, np.uint32))]
    for start in range(0, len(texts), AT_ONCE):
        runs, owners = run_hashes(texts[start : start + AT_ONCE], RUN_WORDS)
        order = np.lexsort((runs, owners))
        runs, owners = runs[order], owners[order]
        first = np.ones(len(runs), dtype=bool)
        first[1:] = (runs[1:] != runs[:-1]) | (owners[1:] != owners[:-1])
        parts.append((runs[first], owners[first] + np.uint32(start)))
    return np.concatenate([runs for runs, _ in parts]), np.concatenate([owners for _, owners in parts])


def forms(raw: str) -> set[str]:
    """Clean, with run-ons repaired or not, with personal data masked or not; none of a text that has nothing left."""
    cleaned = {clean(raw, Cleaning(repair_run_ons=repair)) for repair in (True, False)} - {""}
    return cleaned | {personal_data.mask(text)[0] for text in cleaned}


@lru_cache(1)
def load(path: str) -> Withheld:
    with storage.open_bytes(path) as file:
        stored = np.load(file)
        exact = stored["exact"].tobytes()
        hashes = {exact[i : i + 16] for i in range(0, len(exact), 16)}
        return Withheld(hashes, stored["runs"], stored["texts"], stored["sizes"])
