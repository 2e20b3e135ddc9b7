"""The result of a shards job, from the footers of its shards, checked against the corpus."""

import dataclasses
import json
import os
from typing import Any

from beam_jobs.config import ShardsOptions
from beam_jobs.corpus import parquet_files
from beam_jobs.deduplication import evaluation_texts
from beam_jobs.job import storage
from beam_jobs.job.errors import UserError
from beam_jobs.job.files import hash_bytes
from beam_jobs.job.progress import Progress
from beam_jobs.packing.packing import SPECIALS, Counts
from beam_jobs.packing.plan import ShardsPlan
from beam_jobs.packing.shard_files import list_shards, parse_counts


def update_bar(bar: Progress, plan: ShardsPlan, done: int | None = None) -> None:
    """Show how many units have a shard (or `done`, for some give none), and what is in them."""
    shards = set(list_shards(plan.packing.output))
    finished = [
        unit for unit in plan.units if os.path.basename(plan.packing.shard_path(unit)) in shards
    ]
    rows = sum(unit.rows for unit in finished)
    bar.update(done or len(finished), **{plan.units[0].rows_are: rows})


def summarize_shards(plan: ShardsPlan) -> dict[str, Any]:
    """Return the sum of what all footers say.

    Raises UserError if there is no sequence, or if the corpus says it holds other reviews.
    """
    packing, source = plan.packing, plan.options.corpus or "the text"
    footers = [
        parquet_files.read_footer(storage.join_path(packing.output, name))
        for name in list_shards(packing.output)
    ]
    counts = sum(map(parse_counts, footers), Counts())
    if not counts.sequences:
        raise UserError(
            f"--split: no review of split {packing.split!r} in {source} has a token; "
            "give a larger dump"
        )
    assert counts.tokens == counts.text_tokens + SPECIALS * counts.pieces, (
        f"tokens lost or invented: {counts}"
    )
    check_documents(counts, plan.options)
    return dataclasses.asdict(counts) | {
        "fill": round(counts.tokens / (counts.sequences * packing.max_length), 5),
        "shards": len(footers),
        "max_length": packing.max_length,
        "split": packing.split,
        "vocabulary_size": packing.vocabulary_size,
        "vocabulary_fingerprint": packing.vocabulary_fingerprint,
        "made_of": describe_sources(plan.options),
    }


def check_documents(counts: Counts, options: ShardsOptions) -> None:
    """Refuse shards of more or fewer reviews than corpus.json, where there is one, counts."""
    splits = json.loads(read_corpus_json(options.corpus) or "{}").get("splits", {})
    expected, packed = splits.get(options.split, 0), counts.documents + counts.empty_documents
    if splits and expected != packed:
        path = storage.join_path(options.corpus, "corpus.json")
        raise UserError(
            f"--corpus: {path} counts {expected} reviews in {options.split!r}, its files hold "
            f"{packed}; run corpus_job again"
        )


def describe_sources(options: ShardsOptions) -> dict[str, Any]:
    """Return what pre-training will see: the corpus, and the evaluation texts kept out of it.

    A corpus is known by the SHA-256 of its corpus.json; where there is none, by "".
    """
    content = read_corpus_json(options.corpus)
    if content:
        withheld = json.loads(content).get("agreed", {}).get("withhold", [])
        return {"corpus": hash_bytes(content), "withheld": withheld}
    files = storage.expand_patterns(list(options.withhold), "--withhold")
    sources: dict[str, Any] = {
        "corpus": "",
        "withheld": sorted(map(evaluation_texts.identify_file, files)),
    }
    if options.withhold_corpus:
        sources["withheld_corpus"] = hash_bytes(read_corpus_json(options.withhold_corpus))
    return sources


def read_corpus_json(corpus: str) -> bytes:
    """Return the content of a corpus's corpus.json; b"" where there is none."""
    path = storage.join_path(corpus, "corpus.json") if corpus else ""
    return storage.read_bytes(path) if path and storage.exists(path) else b""
