"""The shards: sentences → token ids, several reviews packed into a sequence (Beam)."""

from collections.abc import Sequence
from pathlib import Path

from flows.parameters import Parameters
from flows.store import Stage, Store
from model.presets import PRESETS

MOST_EVALUATED = 1_000_000
"""Dev and test reviews that general text is searched for: 5 KB of memory each (beam_jobs/withholding.py)."""


def stage(parameters: Parameters, corpus: Stage, vocabulary: Stage) -> Stage:
    max_length = parameters.shards.max_length or PRESETS[parameters.preset].max_length
    workers = parameters.corpus.workers
    return Stage(
        "shards",
        2,
        {"max_length": max_length},
        {"corpus": corpus, "vocabulary": vocabulary},
        "beam_jobs.shards_job",
        lambda store, folder: [
            *["--corpus", str(store.folder(corpus))],
            *["--vocabulary", str(store.folder(vocabulary))],
            *["--output", str(folder)],
            *["--max_length", str(max_length)],
            *(["--direct_num_workers", str(workers)] if workers else []),
        ],
    )


def general(
    parameters: Parameters,
    texts: Sequence[Path],
    withheld: Sequence[Path],
    corpus: Stage,
    vocabulary: Stage,
    store: Store,
) -> Stage:
    """Shards of text that is not reviews, for a study's control arm: the reviews' vocabulary, sentences and length.

    What is tested on stays out: the texts of the `withheld` files, and the dev and test reviews of the corpus. If these
    are more than MOST_EVALUATED, they are not searched for, and the report warns of it.
    """
    max_length = parameters.shards.max_length or PRESETS[parameters.preset].max_length
    workers = parameters.corpus.workers
    return Stage(
        "shards",
        3 if withheld else 2,  # 3: as of corpus 4
        {
            "max_length": max_length,
            "general_text": [store.digest(path) for path in texts],
            "withhold": [store.digest(path) for path in withheld],
        },
        {"corpus": corpus, "vocabulary": vocabulary},
        "beam_jobs.shards_job",
        lambda store, folder: [
            *["--general_text", *map(str, texts)],
            *["--punkt", str(store.folder(corpus) / "punkt.json")],
            *["--vocabulary", str(store.folder(vocabulary))],
            *["--output", str(folder)],
            *["--max_length", str(max_length)],
            *(["--withhold", *map(str, withheld)] if withheld else []),
            *(["--withhold_corpus", str(store.folder(corpus))] if evaluated(corpus, store) <= MOST_EVALUATED else []),
            *(["--direct_num_workers", str(workers)] if workers else []),
        ],
        title="general-text shards",
    )


def evaluated(corpus: Stage, store: Store) -> int:
    """Dev and test reviews of a corpus that is complete."""
    splits = (store.manifest(corpus) or {"result": {}})["result"].get("splits", {})
    return splits.get("dev", 0) + splits.get("test", 0)
