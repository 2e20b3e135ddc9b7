"""The vocabulary: WordPiece trained on the corpus's pretrain split, or a published encoder's."""

from functools import partial
from pathlib import Path

from flows.configuration.form import Parameters
from flows.stages.origin import open_vocabulary
from flows.stages.versions import VERSIONS
from flows.store.store import Stage, Store
from model.recipes import RECIPES


def build_vocabulary_stage(
    parameters: Parameters, corpus: Stage, origin: Stage | None = None
) -> Stage:
    """Return the vocabulary that the form asks for; `origin` is what pre-training starts from."""
    if origin:
        return origin
    size = parameters.vocabulary.size or RECIPES[parameters.recipe].vocabulary_size
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


def build_vocabulary_fit_stage(corpus: Stage, vocabulary: Stage) -> Stage:
    """Return the stage that measures how well a vocabulary fits a corpus it was not trained on,
    against how well it fitted the first one.
    """
    return Stage(
        "vocabulary-fit",
        VERSIONS["vocabulary-fit"],
        {},
        {"corpus": corpus, "vocabulary": vocabulary},
        "model.vocabulary_fit",
        partial(format_fit_arguments, corpus, vocabulary),
        title="vocabulary fit",
    )


def format_fit_arguments(corpus: Stage, vocabulary: Stage, store: Store, folder: Path) -> list[str]:
    """Return the command line that measures how a vocabulary fits a corpus."""
    return [
        *["--corpus", str(store.fetch(corpus))],
        *["--vocabulary", open_vocabulary(store, vocabulary)],
        *["--output", str(folder)],
    ]
