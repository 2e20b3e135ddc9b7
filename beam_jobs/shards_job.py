r"""Corpus (or general text) + vocabulary → shards: packed sequences of token ids for pre-training.

    python -m amazon_electra.beam_jobs.shards_job --corpus corpus --vocabulary vocabulary \
        --output shards --max-length 128

General text (`--general-text wiki/*.gz`) is made a corpus first. A unit (packing/plan.py) becomes
one shard, or none where the split has nothing in it; a shard that an interrupted run has finished
is recognised by its footer. The command adds up the footers; of a template, a last step does.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

import apache_beam as beam
from typing_extensions import Doc

from amazon_electra.beam_jobs import corpus_job
from amazon_electra.beam_jobs.config import (
    CorpusConfig,
    Output,
    Place,
    Punkt,
    ShardsConfig,
    Withheld,
    WithheldCorpus,
)
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.progress import Progress
from amazon_electra.beam_jobs.core.results import ShardsResult
from amazon_electra.beam_jobs.engine.beam_options import describe_engine, is_staged_only
from amazon_electra.beam_jobs.engine.run import run_beam_graph, sort_largest_first, start_clock
from amazon_electra.beam_jobs.packing import shards
from amazon_electra.beam_jobs.packing.plan import ShardsPlan, plan_shards, prepare_output

MAX_DOCUMENT = 200_000  # characters of a document of general text; longer ones are dropped


def make_shards(
    config: ShardsConfig,
    vocabulary: Annotated[Place, Doc("Folder that model.vocabulary wrote")],
    output: Output,
    *,
    corpus: Annotated[Place | None, Doc("Folder that corpus_job wrote")] = None,
    general_text: Annotated[
        Sequence[Place],
        Doc("Instead of a corpus: text files, plain or compressed, with one document a block"),
    ] = (),
    punkt: Punkt = None,
    withhold: Withheld = (),
    withhold_corpus: WithheldCorpus = None,
    beam_options: Sequence[str] = (),
) -> ShardsResult:
    """Pack a corpus, or general text, into sequences of token ids. Any Beam option may follow.

    Raises UserError for inputs that cannot be read or that exclude each other: `punkt`, `withhold`
    and `withhold_corpus` are for general text, which is for pre-training as a whole.
    """
    measure, place = start_clock(), str(output)
    require(bool(corpus) != bool(general_text), "give one of `corpus` and `general_text`")
    of_text = {"punkt": punkt, "withhold": withhold, "withhold_corpus": withhold_corpus}
    of_corpus = {"split": config.split != "pretrain", "sample_reviews": config.sample_reviews}
    what = "a corpus" if corpus else "general text"
    for field, value in (of_text if corpus else of_corpus).items():
        require(not value, f"it is not for {what}; leave it out", field)
    packing = prepare_output(config, str(vocabulary), place)
    folder = str(corpus or storage.join_path(place, "corpus"))
    if general_text:
        made = corpus_job.make_corpus(
            CorpusConfig(
                format="text",
                split="pretrain=1",
                max_characters=MAX_DOCUMENT,
                title=False,
                max_record_bytes=config.max_record_bytes,
                max_expansion=config.max_expansion,
            ),
            storage.expand_patterns(map(str, general_text), "general_text"),
            folder,
            withhold=withhold,
            withhold_corpus=withhold_corpus,
            punkt=punkt,
            beam_options=beam_options,
        )
        why = "its corpus has to be there before the shards are staged; make it with corpus_job "
        why += "and `format text`, and give it as `corpus`"
        require(not made.staged, why, "general_text")
    plan = plan_shards(config, packing, folder, beam_options, is_kept=bool(corpus))
    engine, units = describe_engine(plan.engine), len(plan.units)
    shards.remove_strays(packing, plan.units)
    with Progress(units, "units", f"shards ({engine})") as bar:
        run_beam_graph(
            plan.engine,
            partial(build_shards_graph, plan=plan),
            lambda: bar.update(len(shards.list_shards(packing.output))),
        )
        if is_staged_only(plan.engine):
            return ShardsResult.of({"staged": engine, "units": units})
        bar.update(units)
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
