"""The vocabulary: WordPiece trained on the corpus's pretrain split."""

from flows.parameters import Parameters
from flows.store import Stage
from model.presets import PRESETS


def stage(parameters: Parameters, corpus: Stage) -> Stage:
    size = parameters.vocabulary.size or PRESETS[parameters.preset].vocabulary_size
    lower_case = parameters.vocabulary.lower_case
    return Stage(
        "vocabulary",
        1,
        {"size": size, "lower_case": lower_case},
        {"corpus": corpus},
        "model.vocabulary",
        lambda store, folder: [
            *["--corpus", str(store.folder(corpus))],
            *["--output", str(folder)],
            *["--size", str(size), "--lower_case", str(lower_case).lower()],
        ],
    )
