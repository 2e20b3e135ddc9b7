"""The shards: sentences → token ids, several reviews packed into a sequence (Beam)."""

from flows.parameters import Parameters
from flows.store import Stage
from model.presets import PRESETS


def stage(parameters: Parameters, corpus: Stage, vocabulary: Stage) -> Stage:
    max_length = parameters.shards.max_length or PRESETS[parameters.preset].max_length
    workers = parameters.corpus.workers
    return Stage(
        "shards",
        1,
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
