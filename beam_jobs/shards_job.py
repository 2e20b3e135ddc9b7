r"""Corpus (or general text) + vocabulary → shards: packed sequences of token ids for pre-training.

    python -m beam_jobs.shards_job --corpus corpus --vocabulary vocabulary --output shards \
        --max-length 128
    python -m beam_jobs.shards_job --general-text wiki/*.gz --vocabulary vocabulary \
        --output control --max-length 128

General text is made a corpus first. One pass over units of work
(corpus_units.py): each becomes one shard, or none where the split has nothing in it. A unit that an
earlier, interrupted run has finished is recognised by the shard's footer and not done again.

    units ─► pack into a shard ─► (counts are read back from the shards' footers)

The command adds them up; of a template, which no command waits for, a last step does.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import apache_beam as beam

from beam_jobs import corpus_job
from beam_jobs.config import ShardsOptions
from beam_jobs.core import storage
from beam_jobs.core.command import main
from beam_jobs.core.errors import UserError
from beam_jobs.core.progress import Progress
from beam_jobs.core.settings import read_known_options
from beam_jobs.engine import beam_options
from beam_jobs.engine.run import run_beam_graph, sort_largest_first, start_clock
from beam_jobs.packing.plan import ShardsPlan, plan_shards, prepare_output
from beam_jobs.packing.shards import (
    PackIntoShards,
    finish_shards,
    remove_strays,
    update_bar,
)

DESCRIPTION = "Pack a corpus into sequences of token ids. Any Beam option may follow."
LONGEST_DOCUMENT = 200_000
"""Characters of a document of general text; longer ones are dropped and counted."""


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Make the shards; return what shards.json holds, or what was staged."""
    measure = start_clock()
    options, flags = read_known_options(ShardsOptions, argv, "shards_job", DESCRIPTION)
    packing = prepare_output(options)
    corpus = options.corpus or make_corpus(options, flags)
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


def make_corpus(options: ShardsOptions, flags: list[str]) -> str:
    """Make a corpus of general text, all of it on the pretrain side; return its folder.

    An interrupted job is continued by the same command.
    """
    files = storage.expand_patterns(options.general_text, "--general-text")
    folder = storage.join_path(options.output, "corpus")
    words = ["--input", *files, "--output", folder, "--format", "text", "--split", "pretrain=1"]
    words += ["--max-characters", str(LONGEST_DOCUMENT), "--title", "false"]
    words += ["--max-record-bytes", str(options.max_record_bytes)]
    words += ["--max-expansion", str(options.max_expansion), "--withhold-own", "false"]
    words += ["--withhold", *options.withhold, "--withhold-corpus", options.withhold_corpus]
    words += ["--punkt", options.punkt] if options.punkt else []
    if "staged" in corpus_job.run([*words, *flags]):
        raise UserError(
            "--general-text: its corpus has to be there before the shards are staged; make it "
            "with corpus_job --format text, and give it as --corpus"
        )
    return folder


if __name__ == "__main__":
    main(run)
