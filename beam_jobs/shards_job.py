r"""Corpus (or general text) + vocabulary → shards: packed sequences of token ids for pre-training.

    python -m amazon_electra.beam_jobs.shards_job --corpus corpus --vocabulary vocabulary \
        --output shards \
        --max-length 128
    python -m amazon_electra.beam_jobs.shards_job --general-text wiki/*.gz --vocabulary vocabulary \
        --output control --max-length 128

General text is made a corpus first. One pass over units of work
(corpus_units.py): each becomes one shard, or none where the split has nothing in it. A unit that an
earlier, interrupted run has finished is recognised by the shard's footer and not done again.

    units ─► pack into a shard ─► (counts are read back from the shards' footers)

The command adds them up; of a template, which no command waits for, a last step does.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import apache_beam as beam

from amazon_electra.beam_jobs import corpus_job
from amazon_electra.beam_jobs.config import CorpusConfig, Place, ShardsConfig, ShardsOptions
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.command import main
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.progress import Progress
from amazon_electra.beam_jobs.core.results import ShardsResult
from amazon_electra.beam_jobs.core.settings import build_settings, read_known_options
from amazon_electra.beam_jobs.engine import beam_options
from amazon_electra.beam_jobs.engine.run import run_beam_graph, sort_largest_first, start_clock
from amazon_electra.beam_jobs.packing.plan import ShardsPlan, plan_shards, prepare_output
from amazon_electra.beam_jobs.packing.shards import (
    PackIntoShards,
    finish_shards,
    remove_strays,
    update_bar,
)

DESCRIPTION = "Pack a corpus into sequences of token ids. Any Beam option may follow."
MAX_DOCUMENT = 200_000
"""Characters of a document of general text; longer ones are dropped and counted."""


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Make the shards that a command line asks for."""
    options, flags = read_known_options(ShardsOptions, argv, "shards_job", DESCRIPTION)
    return _make_with(options, flags)


def make_shards(
    config: ShardsConfig,
    vocabulary: Place,
    output: Place,
    *,
    corpus: Place | None = None,
    general_text: Sequence[Place] = (),
    punkt: Place | None = None,
    withhold: Sequence[Place] = (),
    withhold_corpus: Place | None = None,
    beam_options: Sequence[str] = (),
) -> ShardsResult:
    """Pack a corpus, or general text, into shards, in the folder `output`.

    `punkt`, `withhold` and `withhold_corpus` belong to general text; see make_corpus. Raises
    UserError for inputs that cannot be read or that exclude each other.
    """
    options = build_settings(
        ShardsOptions,
        dict(config)
        | {
            "vocabulary": str(vocabulary),
            "output": str(output),
            "corpus": str(corpus) if corpus else None,
            "general_text": tuple(map(str, general_text)),
            "punkt": str(punkt) if punkt else None,
            "withhold": tuple(map(str, withhold)),
            "withhold_corpus": str(withhold_corpus) if withhold_corpus else None,
        },
    )
    return ShardsResult.of(_make_with(options, list(beam_options)))


def _make_with(options: ShardsOptions, flags: list[str]) -> dict[str, Any]:
    measure = start_clock()
    packing = prepare_output(options)
    corpus = options.corpus or make_general_corpus(options, flags)
    plan = plan_shards(options, flags, packing, corpus)
    engine, units = beam_options.describe_engine(plan.engine), len(plan.units)
    remove_strays(plan.packing, plan.units)
    with Progress(units, "units", f"shards ({engine})") as bar:
        run_beam_graph(
            plan.engine,
            partial(build_shards_graph, plan=plan),
            plan.packing.output,
            lambda: update_bar(bar, plan),
        )
        if beam_options.is_staged_only(plan.engine):
            return {"staged": engine, "units": units}
        update_bar(bar, plan, units)
    return finish_shards(plan, measure)


def build_shards_graph(pipeline: beam.Pipeline, plan: ShardsPlan) -> beam.PCollection:
    """Pack each unit into a shard, the largest first."""
    units = sort_largest_first(plan.units, lambda unit: unit.rows)
    packed = (
        pipeline
        | "List units" >> beam.Create(units)
        | "Pack into shards" >> beam.ParDo(PackIntoShards(plan.packing))
    )
    if beam_options.is_staged_only(plan.engine):  # where nobody waits to add up
        _ = (
            packed
            | "Count units" >> beam.combiners.Count.Globally()
            | "Write totals"
            >> beam.Map(lambda _, plan: finish_shards(plan), replace(plan, units=()))
        )
    return packed


def make_general_corpus(options: ShardsOptions, flags: list[str]) -> str:
    """Make a corpus of general text, all of it on the pretrain side; return its folder.

    An interrupted job is continued by the same command.
    """
    folder = storage.join_path(options.output, "corpus")
    config = CorpusConfig(
        format="text",
        split="pretrain=1",
        max_characters=MAX_DOCUMENT,
        title=False,
        withhold_own=False,
        max_record_bytes=options.max_record_bytes,
        max_expansion=options.max_expansion,
    )
    made = corpus_job.make_corpus(
        config,
        storage.expand_patterns(options.general_text, "general_text"),
        folder,
        withhold=options.withhold,
        withhold_corpus=options.withhold_corpus,
        punkt=options.punkt,
        beam_options=flags,
    )
    if made.staged:
        raise UserError(
            "its corpus has to be there before the shards are staged; make it "
            "with corpus_job and `format='text'`, and give it as `corpus`",
            "general_text",
        )
    return folder


if __name__ == "__main__":
    main(run, ShardsOptions)
