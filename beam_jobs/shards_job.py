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
from typing import Annotated

import apache_beam as beam
from typing_extensions import Doc

from amazon_electra.beam_jobs import corpus_job
from amazon_electra.beam_jobs.config import CorpusConfig, Place, ShardsConfig, ShardsOptions
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.progress import Progress
from amazon_electra.beam_jobs.core.results import ShardsResult
from amazon_electra.beam_jobs.core.settings import build_settings
from amazon_electra.beam_jobs.engine.beam_options import describe_engine, is_staged_only
from amazon_electra.beam_jobs.engine.run import run_beam_graph, sort_largest_first, start_clock
from amazon_electra.beam_jobs.packing.plan import ShardsPlan, plan_shards, prepare_output
from amazon_electra.beam_jobs.packing.shards import (
    PackIntoShards,
    finish_shards,
    remove_strays,
    update_bar,
)

MAX_DOCUMENT = 200_000
"""Characters of a document of general text; longer ones are dropped and counted."""


def make_shards(
    config: ShardsConfig,
    vocabulary: Annotated[Place, Doc("Folder that model.vocabulary wrote")],
    output: Annotated[Place, Doc("Folder of the shards")],
    *,
    corpus: Annotated[Place | None, Doc("Folder that corpus_job wrote")] = None,
    general_text: Annotated[
        Sequence[Place],
        Doc("Instead of a corpus: text files, plain or compressed, with one document a block"),
    ] = (),
    punkt: Annotated[
        Place | None,
        Doc(
            "With general text: Punkt parameters, such as punkt.json of a corpus; none: trained on "
            "the text"
        ),
    ] = None,
    withhold: Annotated[
        Sequence[Place], Doc("With general text: evaluation files, whose texts are left out")
    ] = (),
    withhold_corpus: Annotated[
        Place | None,
        Doc("With general text: corpus whose dev and test reviews are left out"),
    ] = None,
    beam_options: Sequence[str] = (),
) -> ShardsResult:
    """Pack a corpus, or general text, into sequences of token ids. Any Beam option may follow.

    Raises UserError for inputs that cannot be read or that exclude each other.
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
    flags, measure = list(beam_options), start_clock()
    packing = prepare_output(options)
    corpus = options.corpus or make_general_corpus(options, flags)
    plan = plan_shards(options, flags, packing, corpus)
    engine, units = describe_engine(plan.engine), len(plan.units)
    remove_strays(plan.packing, plan.units)
    with Progress(units, "units", f"shards ({engine})") as bar:
        run_beam_graph(
            plan.engine,
            partial(build_shards_graph, plan=plan),
            plan.packing.output,
            lambda: update_bar(bar, plan),
        )
        if is_staged_only(plan.engine):
            return ShardsResult.of({"staged": engine, "units": units})
        update_bar(bar, plan, units)
    return ShardsResult.of(finish_shards(plan, measure))


def build_shards_graph(pipeline: beam.Pipeline, plan: ShardsPlan) -> beam.PCollection:
    """Pack each unit into a shard, the largest first."""
    units = sort_largest_first(plan.units, lambda unit: unit.rows)
    packed = (
        pipeline
        | "List units" >> beam.Create(units)
        | "Pack into shards" >> beam.ParDo(PackIntoShards(plan.packing))
    )
    if is_staged_only(plan.engine):  # where nobody waits to add up
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
            "with corpus_job and `format text`, and give it as `corpus`",
            "general_text",
        )
    return folder


if __name__ == "__main__":
    from amazon_electra.beam_jobs.core.command_line import run_as_command

    run_as_command(make_shards)
