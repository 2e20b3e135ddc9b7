"""The corpus: reviews → cleaned sentences in four splits (Beam)."""

from flows.parameters import Parameters
from flows.stages import dump
from flows.store import Stage, Store


def stage(parameters: Parameters, reviews: Stage, store: Store) -> Stage:
    """Withheld files are known by their content, like the dump's."""
    chosen = parameters.corpus
    withheld = [path for given in chosen.withhold for path in dump.files(given, store)]
    return Stage(
        "corpus",
        1,
        {"split": chosen.split, "seed": chosen.seed, "withhold": [store.digest(path) for path in withheld]},
        {"dump": reviews},
        "beam_jobs.corpus_job",
        lambda store, folder: [
            *["--input", *reviews.result["paths"]],
            *["--output", str(folder)],
            *["--split", chosen.split, "--seed", str(chosen.seed)],
            *(["--withhold", *map(str, withheld)] if withheld else []),
            *(["--direct_num_workers", str(chosen.workers)] if chosen.workers else []),
        ],
    )
