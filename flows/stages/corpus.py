"""The corpus: reviews → cleaned sentences in four splits (Beam)."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from beam_jobs.core.errors import UserError
from flows.configuration.form import Corpus, Engine, Parameters
from flows.stages.dump import (
    KnownFile,
    format_options,
    know_files,
    list_files,
    list_reading_options,
    locate_dump,
    locate_files,
)
from flows.stages.versions import VERSIONS
from flows.store.store import Stage, Store


def build_corpus_stage(
    parameters: Parameters, dump: Stage, store: Store, earlier: Sequence[Stage] = ()
) -> Stage:
    """Return the stage that makes the corpus; withheld files are known by their content, like the
    dump's.

    `earlier` are the corpora whose texts are not taken again, oldest first; each one's fingerprint
    contains those before it.
    """
    chosen = parameters.corpus
    if earlier and chosen.split_by == "time":
        raise UserError(
            "corpus.split_by: time; an earlier corpus has its own latest reviews as test; a dump "
            "that is added is split by text, product or user"
        )
    withheld = [
        path for given in chosen.withhold for path in list_files(given, store, "corpus.withhold")
    ]
    asked = {"label": parameters.dump.labels, "stars_scale": parameters.dump.stars_scale}
    labels = {name: value for name, value in asked.items() if value}
    if parameters.dump.labels and not parameters.dump.fold_labels:
        labels["fold_labels"] = "false"
    options = list_reading_options(parameters.dump) | labels | list_selection_options(chosen)
    known = know_files(withheld, store)
    return Stage(
        "corpus",
        VERSIONS["corpus"],
        {"split": chosen.split, "withhold": [sha256 for _, sha256 in known], **options},
        {"dump": dump, **({"earlier": earlier[-1]} if earlier else {})},
        "beam_jobs.corpus_job",
        partial(format_arguments, chosen, parameters.engine, dump, earlier, known, options),
        on_engine=parameters.engine.is_far,
    )


def format_arguments(
    chosen: Corpus,
    engine: Engine,
    dump: Stage,
    earlier: Sequence[Stage],
    withheld: Sequence[KnownFile],
    options: Mapping[str, Any],
    store: Store,
    folder: Path,
) -> list[str]:
    """Return the command line of the corpus job."""
    kept_out = locate_files(withheld, store, "corpus.withhold")
    return [
        *["--input", *locate_dump(dump, store)],
        *["--output", store.open_output(folder, engine.is_far)],
        *["--split", chosen.split],
        *(["--seen", *(store.open_input(c, engine.is_far) for c in earlier)] if earlier else []),
        *(["--withhold", *kept_out] if kept_out else []),
        *format_options(options),
        *engine.list_options(chosen.workers),
    ]


def list_selection_options(chosen: Corpus) -> dict[str, Any]:
    """Return which texts are taken, as the corpus job's options; only what was set, like
    `list_reading_options`.
    """
    options: dict[str, Any] = {
        "languages": sorted(chosen.languages),
        "near_duplicates": chosen.near_duplicates,
        "split_by": "" if chosen.split_by == "text" else chosen.split_by,
        "dates": chosen.dates if chosen.split_by == "time" else "",
        "title": "" if chosen.title else "false",
    }
    return {name: value for name, value in options.items() if value}
