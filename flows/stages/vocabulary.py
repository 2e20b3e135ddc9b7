"""The vocabulary: WordPiece trained on the corpus's pretrain split."""

from flows.configuration.parameters import Increment, Parameters
from flows.runner.store import Stage
from model.presets import PRESETS


def build_vocabulary_stage(parameters: Parameters, corpus: Stage) -> Stage:
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


def build_vocabulary_fit_stage(increment: Increment, corpus: Stage, vocabulary: Stage) -> Stage:
    """Return the stage that measures how well a vocabulary fits a corpus it was not trained on,
    against how well it fitted the first one.
    """
    limits = {"unknown_rate": increment.unknown_rate, "tokens_per_word": increment.tokens_per_word}
    return Stage(
        "vocabulary-fit",
        1,
        limits,
        {"corpus": corpus, "vocabulary": vocabulary},
        "model.vocabulary_fit",
        lambda store, folder: [
            *["--corpus", str(store.folder(corpus)), "--vocabulary", str(store.folder(vocabulary))],
            *["--output", str(folder)],
            *(word for name, limit in limits.items() for word in (f"--{name}", str(limit))),
        ],
        title="vocabulary fit",
    )
