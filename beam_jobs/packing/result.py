"""The result of a shards job, from the footers of its shards, checked against the corpus."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

from beam_jobs.core import storage
from beam_jobs.core.errors import UserError
from beam_jobs.core.progress import Progress
from beam_jobs.corpus import parquet_files
from beam_jobs.packing.packing import SPECIALS, Counts
from beam_jobs.packing.plan import ShardsPlan
from beam_jobs.packing.shard_files import list_shards, parse_counts


def update_bar(bar: Progress, plan: ShardsPlan, done: int | None = None) -> None:
    """Show how many units have a shard (or `done`, for some give none), and what is in them."""
    shards = set(list_shards(plan.packing.output))
    finished = [u for u in plan.units if os.path.basename(plan.packing.shard_path(u)) in shards]
    rows = sum(unit.rows for unit in finished)
    bar.update(done or len(finished), **{plan.units[0].rows_are: rows})


def finish_shards(plan: ShardsPlan, measure: Callable[[], dict[str, Any]] = dict) -> dict[str, Any]:
    """Write shards.json, the mark of finished shards, with what `measure` returns last; return its
    content.
    """
    result = summarize_shards(plan) | measure()
    storage.remove_path(storage.join_path(plan.packing.output, "withheld"))
    storage.write_json(storage.join_path(plan.packing.output, "shards.json"), result)
    return result


def write_totals(units: int, plan: ShardsPlan) -> None:
    """Finish the shards of so many units as a step of the graph, which an engine may repeat."""
    finish_shards(plan)


def summarize_shards(plan: ShardsPlan) -> dict[str, Any]:
    """Return the sum of what all footers say.

    Raises UserError if there is no sequence in what is no sample, or if the corpus says it holds
    other reviews.
    """
    packing, source = plan.packing, os.path.dirname(plan.sources.corpus) or "the text"
    footers = [
        parquet_files.read_footer(storage.join_path(packing.output, name))
        for name in list_shards(packing.output)
    ]
    counts = sum(map(parse_counts, footers), Counts())
    if not (counts.sequences or plan.sources.is_sample):
        raise UserError(
            f"--split: no review of split {packing.split!r} in {source} has a token; "
            "give a larger dump"
        )
    assert counts.tokens == counts.text_tokens + SPECIALS * counts.pieces, (
        f"tokens lost or invented: {counts}"
    )
    packed = counts.documents + counts.empty_documents
    if plan.sources.documents not in (None, packed):
        raise UserError(
            f"--corpus: {plan.sources.corpus} counts {plan.sources.documents} reviews in "
            f"{packing.split!r}, its files hold {packed}; run corpus_job again"
        )
    return dataclasses.asdict(counts) | {
        "fill": round(counts.tokens / (max(counts.sequences, 1) * packing.max_length), 5),
        "shards": len(footers),
        "max_length": packing.max_length,
        "split": packing.split,
        "vocabulary_size": packing.vocabulary_size,
        "vocabulary_fingerprint": packing.vocabulary_fingerprint,
        "made_of": plan.sources.made_of,
    }
