r"""Corpus (or general text) + vocabulary → shards: packed sequences of token ids for pre-training.

    python -m beam_jobs.shards_job --corpus corpus --vocabulary vocabulary --output shards \
        --max-length 128
    python -m beam_jobs.shards_job --general-text wiki/*.gz --vocabulary vocabulary \
        --output control --max-length 128

General text is made a corpus first (general_text.py). One pass over units of work
(corpus_units.py): each becomes one shard, or none where the split has nothing in it. A unit that an
earlier, interrupted run has finished is recognised by the shard's footer and not done again.

    units ─► pack into a shard ─► (counts are read back from the shards' footers)

The command adds them up; of a template, which no command waits for, a last step does.
"""

from functools import partial
from typing import Any

import apache_beam as beam

from beam_jobs.config import ShardsOptions
from beam_jobs.core.command import main
from beam_jobs.core.progress import track_progress
from beam_jobs.core.settings import read_known_options
from beam_jobs.engine import beam_options
from beam_jobs.engine.run import add_last_step, run_beam_graph, sort_largest_first, start_clock
from beam_jobs.packing.general_text import make_corpus
from beam_jobs.packing.plan import ShardsPlan, plan_shards, prepare_output
from beam_jobs.packing.shards import (
    PackIntoShards,
    finish_shards,
    remove_strays,
    update_bar,
    write_totals,
)

DESCRIPTION = "Pack a corpus into sequences of token ids. Any Beam option may follow."


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Make the shards; return what shards.json holds, or what was staged."""
    measure = start_clock()
    options, flags = read_known_options(ShardsOptions, argv, "shards_job", DESCRIPTION)
    packing = prepare_output(options)
    corpus = options.corpus or make_corpus(options, flags)
    plan = plan_shards(options, flags, packing, corpus)
    engine, units = beam_options.describe_engine(plan.engine), len(plan.units)
    remove_strays(plan.packing, plan.units)
    with track_progress(units, "units", f"shards ({engine})") as bar:
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
        add_last_step(packed, write_totals, plan.without_units())
    return packed


if __name__ == "__main__":
    main(run)
