"""The shards: sentences → token ids, several reviews packed into a sequence (Beam)."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from beam_jobs.core.errors import UserError
from flows.configuration.form import Engine, Parameters, Shards
from flows.runner.logs import find_run_logger
from flows.stages.dump import KnownFile, know_files, locate_files
from flows.stages.origin import POSITIONS, describe_origin, get_name, open_vocabulary
from flows.stages.versions import VERSIONS
from flows.store.store import Stage, Store
from model.recipes import RECIPES

DEV_SHARDS = "dev-shards"
"""Name of the stage."""
DEV_REVIEWS = 10_000
"""Dev reviews that are packed, at most about: 1,024 sequences of 512 tokens hold 5,000."""


def build_shards_stage(parameters: Parameters, corpus: Stage, vocabulary: Stage) -> Stage:
    """Return the shards of sequences of as many tokens as the form or the recipe says."""
    max_length, is_far = find_length(parameters), parameters.engine.is_far
    return Stage(
        "shards",
        VERSIONS["shards"],
        {"max_length": max_length},
        {"corpus": corpus, "vocabulary": vocabulary},
        "beam_jobs.shards_job",
        partial(
            format_arguments,
            parameters.engine,
            parameters.corpus.workers,
            corpus,
            vocabulary,
            max_length,
        ),
        on_engine=is_far,
    )


def format_arguments(
    engine: Engine,
    workers: int,
    corpus: Stage,
    vocabulary: Stage,
    max_length: int,
    store: Store,
    folder: Path,
) -> list[str]:
    """Return the command line of the shards job on a corpus."""
    return [
        *["--corpus", store.open_input(corpus, engine.is_far)],
        *_format_packing(engine.is_far, vocabulary, max_length, store, folder),
        *engine.list_options(workers),
    ]


def _format_packing(
    is_far: bool, vocabulary: Stage, max_length: int, store: Store, folder: Path
) -> list[str]:
    """Return the options that say with which vocabulary, where to and how long."""
    return [
        *["--vocabulary", open_vocabulary(store, vocabulary, is_far)],
        *["--output", store.open_output(folder, is_far)],
        *["--max_length", str(max_length)],
    ]


def build_dev_stage(parameters: Parameters, corpus: Stage, vocabulary: Stage) -> Stage:
    """Return shards of dev reviews, on which pre-training measures itself; none where there are no
    dev reviews. So few are packed on this machine also where the engine is far.
    """
    max_length = find_length(parameters)
    return Stage(
        DEV_SHARDS,
        VERSIONS[DEV_SHARDS],
        {"max_length": max_length, "sample_reviews": DEV_REVIEWS},
        {"corpus": corpus, "vocabulary": vocabulary},
        "beam_jobs.shards_job",
        partial(format_dev_arguments, parameters.engine.is_far, corpus, vocabulary, max_length),
        title="dev shards",
    )


def format_dev_arguments(
    is_far: bool,
    corpus: Stage,
    vocabulary: Stage,
    max_length: int,
    store: Store,
    folder: Path,
) -> list[str]:
    """Return the command line of the shards job on the first dev reviews of a corpus."""
    return [
        *["--corpus", store.open_input(corpus, is_far)],
        *["--vocabulary", open_vocabulary(store, vocabulary), "--output", str(folder)],
        *["--max_length", str(max_length), "--split", "dev"],
        *["--sample_reviews", str(DEV_REVIEWS), "--direct_num_workers", "1"],
    ]


def find_length(parameters: Parameters) -> int:
    return parameters.shards.max_length or RECIPES[parameters.recipe].max_length


def fit_length(parameters: Parameters, origin: Stage | None, store: Store) -> Parameters:
    """Return the parameters with sequences of at most the tokens that the published encoder has
    positions for, and log where they are shorter than the recipe's. UserError where the form asks
    for longer ones.
    """
    positions = describe_origin(store, origin).get(POSITIONS) if origin else None
    if not origin or not positions or find_length(parameters) <= positions:
        return parameters
    has = f"{get_name(origin)} has positions for {positions} tokens"
    if asked := parameters.shards.max_length:
        raise UserError(f"shards.max_length={asked}: {has}; give at most so many")
    find_run_logger().warning(
        "%s: sequences of %d are made, not of the recipe's %d",
        has,
        positions,
        find_length(parameters),
    )
    return parameters.model_copy(update={"shards": Shards(max_length=positions)})


def build_general_shards_stage(
    parameters: Parameters,
    texts: Sequence[Path],
    withheld: Sequence[Path],
    corpus: Stage,
    vocabulary: Stage,
    store: Store,
) -> Stage:
    """Return shards of text that is not reviews, for a study's control arm: the reviews'
    vocabulary, sentences and length.

    What is tested on stays out: the texts of the `withheld` files, and the dev and test reviews of
    the corpus.
    """
    max_length, is_far = find_length(parameters), parameters.engine.is_far
    read, kept_out = know_files(texts, store), know_files(withheld, store)
    return Stage(
        "shards",
        VERSIONS["shards"],
        {
            "max_length": max_length,
            "general_text": [sha256 for _, sha256 in read],
            "withhold": [sha256 for _, sha256 in kept_out],
        },
        {"corpus": corpus, "vocabulary": vocabulary},
        "beam_jobs.shards_job",
        partial(
            format_general_arguments,
            parameters.engine,
            parameters.corpus.workers,
            max_length,
            read,
            kept_out,
            corpus,
            vocabulary,
        ),
        title="general-text shards",
        on_engine=is_far,
    )


def format_general_arguments(
    engine: Engine,
    workers: int,
    max_length: int,
    texts: Sequence[KnownFile],
    withheld: Sequence[KnownFile],
    corpus: Stage,
    vocabulary: Stage,
    store: Store,
    folder: Path,
) -> list[str]:
    """Return the command line of the shards job on text that is not reviews."""
    is_far = engine.is_far
    kept_out = locate_files(withheld, store, "corpus.withhold")
    return [
        *["--general-text", *locate_files(texts, store, "general_text")],
        *["--punkt", f"{store.open_input(corpus, is_far)}/punkt.json"],
        *_format_packing(is_far, vocabulary, max_length, store, folder),
        *(["--withhold", *kept_out] if kept_out else []),
        *["--withhold-corpus", store.open_input(corpus, is_far)],
        *engine.list_options(workers),
    ]
