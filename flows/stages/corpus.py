"""The corpus: reviews → cleaned sentences in four splits (Beam)."""

from collections.abc import Sequence
from typing import Any

from flows.parameters import Corpus, Parameters
from flows.stages import dump
from flows.store import Stage, Store


def stage(parameters: Parameters, reviews: Stage, store: Store, earlier: Sequence[Stage] = ()) -> Stage:
    """Withheld files are known by their content, like the dump's.

    `earlier` are the corpora whose texts are not taken again, oldest first; each one's fingerprint contains those
    before it.
    """
    chosen = parameters.corpus
    withheld = [path for given in chosen.withhold for path in dump.files(given, store, "corpus.withhold")]
    options = {**dump.reading(parameters.dump), **selection(chosen)}
    return Stage(
        "corpus",
        4 if withheld else 3,  # 4: sentences of CoNLL and reviews of SubjQA are withheld
        {"split": chosen.split, "seed": chosen.seed, "withhold": [store.digest(path) for path in withheld], **options},
        {"dump": reviews, **({"earlier": earlier[-1]} if earlier else {})},
        "beam_jobs.corpus_job",
        lambda store, folder: [
            *["--input", *reviews.result["paths"]],
            *["--output", str(folder)],
            *["--split", chosen.split, "--seed", str(chosen.seed)],
            *(["--seen", *(str(store.folder(corpus)) for corpus in earlier)] if earlier else []),
            *(["--withhold", *map(str, withheld)] if withheld else []),
            *dump.as_words(options),
            *(["--direct_num_workers", str(chosen.workers)] if chosen.workers else []),
        ],
    )


def selection(chosen: Corpus) -> dict[str, Any]:
    """Which texts are kept, as the corpus job's options; only what was set, like `dump.reading`."""
    options: dict[str, Any] = {"languages": sorted(chosen.languages), "near_duplicates": chosen.near_duplicates}
    return {name: value for name, value in options.items() if value}
