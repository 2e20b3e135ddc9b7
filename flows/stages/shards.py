"""The shards: sentences → token ids, several reviews packed into a sequence (Beam)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from beam_jobs.core.errors import UserError
from flows.configuration.form import Engine, Parameters, Shards
from flows.runner.logs import find_run_logger
from flows.stages.dump import KnownFile, know_files, locate_files
from flows.stages.origin import POSITIONS, describe_origin, get_name, open_vocabulary
from flows.stages.versions import VERSIONS
from flows.store.store import Stage, Store
from model.recipes import RECIPES

DEV_REVIEWS = 10_000
"""Dev reviews that are packed, at most about: 1,024 sequences of 512 tokens hold 5,000."""


@dataclass(frozen=True)
class Packing:
    """What a shards job packs, in sequences of how many tokens, and where it runs."""

    corpus: Stage
    vocabulary: Stage
    max_length: int
    engine: Engine
    workers: int
    of_dev: bool = False
    """Whether it packs dev reviews alone; so few are packed here also where the engine is far."""
    texts: tuple[KnownFile, ...] = ()
    """Files of text that is not reviews, which are packed instead of the corpus's."""
    withheld: tuple[KnownFile, ...] = ()
    """Files whose texts are left out of those."""


def build_shards_stage(parameters: Parameters, corpus: Stage, vocabulary: Stage) -> Stage:
    """Return the shards of sequences of as many tokens as the form or the recipe says."""
    return _build_stage(_describe_packing(parameters, corpus, vocabulary))


def build_dev_stage(parameters: Parameters, corpus: Stage, vocabulary: Stage) -> Stage:
    """Return shards of dev reviews, on which pre-training measures itself; none where there are no
    dev reviews.
    """
    packed = replace(_describe_packing(parameters, corpus, vocabulary), of_dev=True)
    return _build_stage(packed, {"sample_reviews": DEV_REVIEWS}, "dev-shards", "dev shards")


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
    read, kept_out = know_files(texts, store), know_files(withheld, store)
    packed = _describe_packing(parameters, corpus, vocabulary)
    told = {"general_text": [sha256 for _, sha256 in read]}
    told["withhold"] = [sha256 for _, sha256 in kept_out]
    packed = replace(packed, texts=read, withheld=kept_out)
    return _build_stage(packed, told, title="general-text shards")


def _describe_packing(parameters: Parameters, corpus: Stage, vocabulary: Stage) -> Packing:
    length, workers = find_length(parameters), parameters.corpus.workers
    return Packing(corpus, vocabulary, length, parameters.engine, workers)


def _build_stage(
    packed: Packing, told: Mapping[str, Any] = {}, name: str = "shards", title: str = ""
) -> Stage:
    """Return the stage of a shards job; `told` is what decides it besides corpus and length."""
    return Stage(
        name,
        VERSIONS[name],
        {"max_length": packed.max_length, **told},
        {"corpus": packed.corpus, "vocabulary": packed.vocabulary},
        "beam_jobs.shards_job",
        partial(format_arguments, packed),
        title=title,
        on_engine=packed.engine.is_far and not packed.of_dev,
    )


def format_arguments(packed: Packing, store: Store, folder: Path) -> list[str]:
    """Return the command line of the shards job."""
    is_far = packed.engine.is_far
    corpus = store.open_input(packed.corpus, is_far)
    read = ["--corpus", corpus]
    if packed.texts:
        read = ["--general-text", *locate_files(packed.texts, store, "general_text")]
        read += ["--punkt", f"{corpus}/punkt.json", "--withhold-corpus", corpus]
        if kept_out := locate_files(packed.withheld, store, "corpus.withhold"):
            read += ["--withhold", *kept_out]
    on_engine = is_far and not packed.of_dev
    options = packed.engine.list_options(packed.workers)
    if packed.of_dev:
        options = ["--split", "dev", "--sample_reviews", str(DEV_REVIEWS)]
        options += ["--direct_num_workers", "1"]
    return [
        *read,
        *["--vocabulary", open_vocabulary(store, packed.vocabulary, on_engine)],
        *["--output", store.open_output(folder, on_engine)],
        *["--max_length", str(packed.max_length)],
        *options,
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
        raise UserError(f"shards.max_length={asked}: {has}; give at most that many")
    find_run_logger().warning(
        "%s: sequences have %d instead of the recipe's %d",
        has,
        positions,
        find_length(parameters),
    )
    return parameters.model_copy(update={"shards": Shards(max_length=positions)})
