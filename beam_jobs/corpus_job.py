"""Dump → corpus: every review that stays, clean, once, in sentences, on its side of the split.

    python -m amazon_electra.beam_jobs.corpus_job --input 'dumps/*.json.gz' --output corpus

Text goes from file to file, never between workers; what is grouped are counts and row numbers.

    files ─► cut ─► prepare ─┬─► list ─┬─► train Punkt ─────────────────┐
                             │         ├─► buckets ─► find duplicates ──┤
                             │         ├─► bands ─► find near-duplicates┤
                             │         └─► n-grams ─► count common ones ┤
                             │                        ─► match dev, test┤
                             └──────────────────────────────────────────┴─► write

A split by time takes one pass more, which counts the reviews of each date, before `prepare`.
An interrupted job leaves its work folder; the same command finds in it what is done and continues.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Annotated, Any

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton
from typing_extensions import Doc

from amazon_electra.beam_jobs.config import CorpusConfig, Input, Output, Place
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.results import CorpusResult
from amazon_electra.beam_jobs.corpus import prepare, result, write
from amazon_electra.beam_jobs.corpus.plan import (
    CORPUS_FILES,
    FILES_TOGETHER,
    CorpusPlan,
    plan_corpus,
)
from amazon_electra.beam_jobs.deduplication import buckets, exact, held_out, near
from amazon_electra.beam_jobs.engine import beam_options as engines
from amazon_electra.beam_jobs.engine.run import Spread, run_job, sort_largest_first, start_clock
from amazon_electra.beam_jobs.reading import work_units

get_plain_size = attrgetter("plain_size")


def make_corpus(
    config: CorpusConfig,
    input: Input,
    output: Output,
    *,
    withhold: Annotated[
        Sequence[Place], Doc("Files of evaluation texts, which must never reach pre-training")
    ] = (),
    withhold_corpus: Annotated[
        Place | None, Doc("Corpus whose dev and test reviews must never reach pre-training either")
    ] = None,
    punkt: Annotated[
        Place | None, Doc("Folder or punkt.json of a corpus whose Punkt is used, none trained")
    ] = None,
    beam_options: Sequence[str] = (),
) -> CorpusResult:
    """Turn dumps of reviews into a corpus of clean sentences. Any Beam option may follow.

        make_corpus(CorpusConfig(split_by="product"), ["reviews/*.json.gz"], "corpus")

    Raises UserError for what only the user can put right, JobFailed where a unit of work failed.
    `beam_options` choose the engine: `["--direct_num_workers", "4"]`.
    """
    measure = start_clock()
    plan = plan_corpus(config, input, output, withhold, withhold_corpus, punkt, beam_options)
    folders, build = plan.folders, partial(build_corpus_graph, plan=plan)
    folders.clear_other_runs(CORPUS_FILES)
    units = 2 * work_units.estimate_units(plan.files, plan.unit_bytes)

    def count() -> int:
        return sum(len(result.list_finished(f)) for f in (folders.prepared, folders.written))

    if staged := run_job("corpus", plan.engine, build, units, count):
        return CorpusResult.of({"staged": staged})
    return CorpusResult.of(result.finish_corpus(plan, measure))


def build_corpus_graph(pipeline: beam.Pipeline, plan: CorpusPlan) -> beam.PCollection:
    """Return what corpus.json holds, once the corpus is whole."""
    units = cut_files(pipeline, plan) | "Spread units" >> Spread(plan.engine)
    time = None
    if plan.config.split_by == "time":
        column = work_units.name_column(plan.files, "timestamp")
        time = AsSingleton(
            units
            | "Count dates" >> beam.FlatMap(prepare.count_unit_dates, plan.preparation)
            | "Add up dates" >> beam.CombineGlobally(lambda counts: sum(counts, Counter()))
            | "Decide dates" >> beam.Map(prepare.decide_time_split, plan.preparation, column)
        )
    prepared = units | "Prepare units" >> beam.FlatMap(
        prepare.prepare_units, plan.preparation, time
    )
    counts = (
        prepared
        | "Collect counts" >> beam.combiners.ToList()
        | "Check units" >> beam.Map(result.check_prepared, plan.folders.failed)
    )
    sizes = counts | "Join starts" >> beam.Map(buckets.join_unit_starts, plan.folders.prepared)
    punkt = counts | "Train Punkt" >> beam.Map(write.write_punkt, plan.folders, plan.punkt)
    labels = counts | "Decide labels" >> beam.Map(write.decide_labels, plan.config)
    scale = counts | "Decide scale" >> beam.Map(write.decide_scale, plan.config.stars_scale)
    if engines.is_local(plan.engine):
        prepared = counts | "Sort units by reviews" >> beam.FlatMap(
            sort_largest_first, lambda unit: unit.prepared
        )
    by_unit = prepared | "Key counts by unit" >> beam.Map(lambda unit: (unit.unit, unit))
    duplicates = search_duplicates(sizes, plan)
    matches = match_held_out(pipeline, sizes, duplicates.get("near"), plan)
    decided = map(AsSingleton, (sizes, punkt, scale, labels))
    written = (
        {"prepared": by_unit, **duplicates}
        | "Join duplicates with units" >> beam.CoGroupByKey()
        | "Spread joined units" >> Spread(plan.engine)  # Flink deals out by a hash of the name
        | "Write units" >> beam.ParDo(write.WriteUnits(plan.folders), *decided, matches)
    )
    return (
        written
        | "Collect written units" >> beam.combiners.ToList()
        | "Write totals" >> beam.Map(result.write_totals, AsSingleton(counts), plan)
    )


def cut_files(pipeline: beam.Pipeline, plan: CorpusPlan) -> beam.PCollection:
    """Return the units of all files. Files that one worker unpacks are a branch of their own, for
    which no other waits; here, where units are dealt out once, the largest come first.
    """
    size, cuts, failed = plan.unit_bytes, plan.folders.cuts, plan.folders.failed
    branches = []
    for how, is_anew in (("in place", False), ("anew", True)):
        files = [file for file in plan.files if work_units.is_cut_anew(file, size) == is_anew]
        if files:
            branches.append(
                pipeline
                | f"List files {how}" >> beam.Create(sort_largest_first(files, get_plain_size))
                | f"Cut files {how}" >> beam.FlatMap(prepare.cut_into_units, size, cuts, failed)
            )
    units = branches | "Join units" >> beam.Flatten()
    if engines.is_local(plan.engine) and not engines.has_one_process(plan.engine):
        units = (
            units
            | "Collect units" >> beam.combiners.ToList()
            | "Sort units by size" >> beam.FlatMap(sort_largest_first, get_plain_size)
        )
    return units


def search_duplicates(sizes: beam.PCollection, plan: CorpusPlan) -> dict[str, beam.PCollection]:
    """Return by kind rows of reviews that do not stay or have copies of other labels, by unit."""
    units, prepared = AsSingleton(sizes), plan.folders.prepared
    hash_buckets = (
        sizes
        | "List buckets" >> beam.FlatMap(exact.list_buckets)
        | "Spread buckets" >> Spread(plan.engine)
    )
    duplicates = {
        "exact": hash_buckets
        | "Find duplicates" >> beam.FlatMap(exact.find_in_bucket, prepared, units)
    }
    if labels := len(plan.preparation.labels):
        duplicates["contradictions"] = hash_buckets | "Find contradictory labels" >> beam.FlatMap(
            exact.find_contradictions, prepared, units, labels
        )
    if similarity := plan.config.near_duplicates:
        duplicates["near"] = (
            sizes
            | "List bands" >> beam.FlatMap(near.list_buckets, similarity)
            | "Spread bands" >> Spread(plan.engine)
            | "Find near-duplicates" >> beam.FlatMap(near.find_in_bucket, prepared, units)
        )
    return duplicates


def write_others(pipeline: beam.Pipeline, plan: CorpusPlan) -> Any:
    """Write the runs of evaluation files and of a withheld corpus; return a side input."""
    folder, config, files = plan.folders.others, plan.config, plan.withheld_corpus
    written = held_out.write_withheld_runs(
        plan.withheld_files, folder, config.limits, config.repair_mojibake
    )
    joined = storage.join_path(folder, "held-out-runs.starts")
    if not files:
        return buckets.join_files(written, joined)
    groups = [files[i : i + FILES_TOGETHER] for i in range(0, len(files), FILES_TOGETHER)]
    return AsSingleton(
        pipeline
        | "List other corpus" >> beam.Create(enumerate(groups))
        | "Write held-out runs" >> beam.Map(held_out.write_corpus_runs, folder)
        | "Collect held-out runs" >> beam.combiners.ToList()
        | "Join held-out runs" >> beam.Map(buckets.join_files, joined, written)
    )


def match_held_out(
    pipeline: beam.Pipeline,
    sizes: beam.PCollection,
    near_duplicates: beam.PCollection | None,
    plan: CorpusPlan,
) -> Any:
    """Return as a side input the files of what reviews share with held-out texts, if any."""
    if not plan.preparation.withholds:
        return ()
    folder, copies = plan.folders.matches, None
    if near_duplicates:
        copies = AsList(
            near_duplicates
            | "Group near duplicates" >> beam.GroupByKey()
            | "Write near copies" >> beam.Map(near.write_copies, folder)
        )
    others = write_others(pipeline, plan)
    compared = sizes | "Choose what is compared" >> beam.Map(
        held_out.Compared, plan.folders.prepared, folder, copies or (), others
    )
    run_buckets = (
        compared
        | "List run buckets" >> beam.FlatMap(held_out.Compared.list_buckets)
        | "Spread run buckets" >> Spread(plan.engine)
    )
    given = AsSingleton(compared)
    common = AsList(
        run_buckets | "Count texts of n-grams" >> beam.Map(held_out.write_common, given)
    )
    counts = AsList(
        compared
        | "List held-out texts" >> beam.FlatMap(held_out.Compared.list_files)
        | "Spread held-out texts" >> Spread(plan.engine)
        | "Count common n-grams" >> beam.FlatMap(held_out.write_counts, folder, common)
    )
    return AsList(
        run_buckets
        | "Match held-out reviews" >> beam.Map(held_out.write_matches, given, common, counts)
    )


if __name__ == "__main__":
    from amazon_electra.beam_jobs.core.command_line import run_as_command

    run_as_command(make_corpus)
