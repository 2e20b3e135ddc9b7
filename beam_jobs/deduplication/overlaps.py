"""When two texts nearly repeat each other: their words are equal, or of the runs of 8 words of the
shorter one at least half are in the other one.

Runs that many texts share count for nothing (common_ngrams.py). GPT-3 took 13 words and any overlap
(Brown et al. 2020, appendix C), which on reviews, often shorter than 13 words, would miss most
copies.
"""

from collections.abc import Callable, Iterator

import numpy as np

from amazon_electra.beam_jobs.deduplication import evaluation_texts
from amazon_electra.beam_jobs.text.spans import drop_repeats, expand_spans, find_runs, mark_firsts
from amazon_electra.beam_jobs.text.word_runs import Words

RUN_WORDS = 8
MIN_OVERLAP = 0.5
MATCHES = 1 << 18  # pairs of a run and a held-out text that has it, which are counted at once
RUN = np.dtype([("run", "<u8"), ("text", "<u4"), ("words", "<u4")])
"""The hash of a run, the number of a text that has it, and half of the hash of its words."""
WHOLE = np.uint64(1)
"""The last bit of a hash: 1 for the words of a whole text, 0 for a run of RUN_WORDS."""
LookUp = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Returns of distinct runs, ascending, how many held-out texts have each, and the texts of all."""


def list_ngrams(words: Words) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return hashes of runs (uint64), those of whole texts last, and the text of each; and how many
    runs of RUN_WORDS each text has (uint32).
    """
    runs, owners = words.hash_runs(RUN_WORDS)
    sizes = np.bincount(owners, minlength=words.texts).astype(np.uint32)
    texts = np.flatnonzero(words.count_words() >= evaluation_texts.MIN_WORDS).astype(np.uint32)
    runs = np.concatenate([runs & ~WHOLE, words.hash_texts()[texts] | WHOLE])
    return runs, np.concatenate([owners, texts]), sizes


def drop_repeated_runs(runs: np.ndarray, owners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each run of a text once, and the text of each, in their order."""
    order = np.argsort(runs)
    equal = runs[order[1:]] == runs[order[:-1]]
    several = order[np.append(equal, False) | np.append(False, equal)] if len(runs) else order
    several = several[np.lexsort((owners[several], runs[several]))]
    stays = np.ones(len(runs), dtype=bool)
    stays[several] = mark_firsts(runs[several], owners[several])
    return runs[stays], owners[stays]


def count_shared_runs(
    runs: np.ndarray, owners: np.ndarray, look_up: LookUp
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield texts, held-out texts and how many distinct runs both have, each pair of texts once.

    `runs` are those of the texts `owners`; what is yielded at once ascends.
    """
    distinct, numbers = np.unique(runs, return_inverse=True)
    counts, held = look_up(distinct)
    begins = np.cumsum(counts) - counts
    known = counts[numbers] > 0
    pairs = drop_repeats(np.sort(owners[known].astype(np.int64) * len(distinct) + numbers[known]))
    of, which = np.divmod(pairs, max(len(distinct), 1))
    counts = counts[which]
    for first, last in cut_groups(of, counts, MATCHES):
        part = slice(first, last)
        texts = held[expand_spans(begins[which[part]], counts[part])]
        matches = np.repeat(of[part] << 32, counts[part]) | texts
        matches, shared = np.unique(matches, return_counts=True)
        yield matches >> 32, matches & 0xFFFFFFFF, shared


def cut_groups(numbers: np.ndarray, weights: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Yield stretches of ascending numbers: equal ones in the same, and together no more weight
    than `most`, where more than one number is in it.
    """
    ends = find_runs(numbers)[1:]
    totals = np.cumsum(weights)[ends - 1]
    first = group = weight = 0
    while group < len(ends):
        group = max(int(np.searchsorted(totals, weight + most, side="right")), group + 1)
        last, weight = int(ends[group - 1]), int(totals[group - 1])
        yield first, last
        first = last


def are_near(shared: np.ndarray, sizes: np.ndarray, other_sizes: np.ndarray) -> np.ndarray:
    """Return, per pair of texts, whether they overlap, given the runs of both and of each."""
    return shared >= MIN_OVERLAP * np.minimum(sizes, other_sizes)
