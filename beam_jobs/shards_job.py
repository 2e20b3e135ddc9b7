r"""Corpus + vocabulary → shards: packed sequences of token ids for pre-training.

    python -m amazon_electra.beam_jobs.shards_job --corpus corpus --vocabulary vocabulary \
        --output shards --max-length 128

A unit (packing/shards.py) becomes one shard, or none where the split has nothing in it. The command
adds up the footers of the shards; of a template, a last step does.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

import apache_beam as beam
from typing_extensions import Doc

from amazon_electra.beam_jobs.config import Output, Place, ShardsConfig
from amazon_electra.beam_jobs.core.results import ShardsResult
from amazon_electra.beam_jobs.engine.beam_options import is_staged_only
from amazon_electra.beam_jobs.engine.run import run_job, sort_largest_first, start_clock
from amazon_electra.beam_jobs.packing import shards
from amazon_electra.beam_jobs.packing.shards import ShardsPlan


def make_shards(
    config: ShardsConfig,
    vocabulary: Annotated[Place, Doc("Folder that model.vocabulary wrote")],
    output: Output,
    *,
    corpus: Annotated[Place, Doc("Folder that corpus_job wrote")],
    beam_options: Sequence[str] = (),
) -> ShardsResult:
    """Pack a corpus into sequences of token ids. Any Beam option may follow.

    Raises UserError for inputs that cannot be read.
    """
    measure = start_clock()
    packing = shards.prepare_output(config, str(vocabulary), str(output))
    plan = shards.plan_shards(config, packing, str(corpus), beam_options)
    shards.remove_strays(packing, plan.units)
    build, units = partial(build_shards_graph, plan=plan), len(plan.units)
    if staged := run_job(
        "shards", plan.engine, build, units, lambda: len(shards.list_shards(packing.output))
    ):
        return ShardsResult.of({"staged": staged, "units": units})
    return ShardsResult.of(shards.finish_shards(plan, measure))


def build_shards_graph(pipeline: beam.Pipeline, plan: ShardsPlan) -> beam.PCollection:
    """Pack each unit into a shard, the largest first."""
    units = sort_largest_first(plan.units, lambda unit: unit.rows)
    packed = (
        pipeline
        | "List units" >> beam.Create(units)
        | "Pack into shards" >> beam.ParDo(shards.PackIntoShards(plan.packing))
    )
    if is_staged_only(plan.engine):  # where nobody waits to add up
        _ = (
            packed
            | "Count units" >> beam.combiners.Count.Globally()
            | "Write totals"
            >> beam.Map(lambda _, plan: shards.finish_shards(plan), replace(plan, units=()))
        )
    return packed


if __name__ == "__main__":
    from amazon_electra.beam_jobs.core.command_line import run_as_command

    run_as_command(make_shards)
