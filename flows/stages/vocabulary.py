"""The vocabulary: WordPiece trained on the corpus's pretrain split, or a published encoder's."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from flows.configuration.form import Increment, Parameters
from flows.stages.origin import open_vocabulary
from flows.stages.versions import VERSIONS
from flows.store.store import Stage, Store
from model.recipes import RECIPES


def build_vocabulary_stage(
    parameters: Parameters, corpus: Stage, origin: Stage | None = None
) -> Stage:
    """Return the vocabulary that the form asks for; `origin` is what pre-training starts from."""
    if origin and parameters.vocabulary.source != "new":
        return origin
    return build_trained_vocabulary_stage(parameters, corpus)


def build_trained_vocabulary_stage(parameters: Parameters, corpus: Stage) -> Stage:
    """Return a vocabulary trained on the corpus, as large as the form or the recipe says."""
    size = choose_size(parameters)
    lower_case = parameters.vocabulary.lower_case
    return Stage(
        "vocabulary",
        VERSIONS["vocabulary"],
        {"size": size, "lower_case": lower_case},
        {"corpus": corpus},
        "model.vocabulary",
        partial(format_training_arguments, corpus, size, lower_case),
    )


def format_training_arguments(
    corpus: Stage, size: int, lower_case: bool, store: Store, folder: Path
) -> list[str]:
    """Return the command line that trains a vocabulary on the corpus."""
    return [
        *["--corpus", str(store.fetch(corpus))],
        *["--output", str(folder)],
        *["--size", str(size), "--lower_case", str(lower_case).lower()],
    ]


def choose_size(parameters: Parameters) -> int:
    """Return how many entries a vocabulary that is trained on the dump has."""
    return parameters.vocabulary.size or RECIPES[parameters.recipe].vocabulary_size


def build_vocabulary_fit_stage(increment: Increment, corpus: Stage, vocabulary: Stage) -> Stage:
    """Return the stage that measures how well a vocabulary fits a corpus it was not trained on,
    against how well it fitted the first one.
    """
    limits = {"unknown_rate": increment.unknown_rate, "tokens_per_word": increment.tokens_per_word}
    return Stage(
        "vocabulary-fit",
        VERSIONS["vocabulary-fit"],
        limits,
        {"corpus": corpus, "vocabulary": vocabulary},
        "model.vocabulary_fit",
        partial(format_fit_arguments, limits, corpus, vocabulary),
        title="vocabulary fit",
    )


def format_fit_arguments(
    settings: Mapping[str, object], corpus: Stage, vocabulary: Stage, store: Store, folder: Path
) -> list[str]:
    """Return the command line that measures how a vocabulary fits a corpus."""
    return [
        *["--corpus", str(store.fetch(corpus))],
        *["--vocabulary", open_vocabulary(store, vocabulary)],
        *["--output", str(folder)],
        *(word for name, value in settings.items() for word in (f"--{name}", str(value))),
    ]
