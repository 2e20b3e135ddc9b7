"""The shards of a job: packed from units, known by their footers, removed if strays, added up."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from itertools import chain
from typing import Any

import apache_beam as beam
import pyarrow as pa

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.parquet import read_footer, write_tables
from amazon_electra.beam_jobs.core.special_tokens import find_specials
from amazon_electra.beam_jobs.engine.units import add_to_counters, attempt, check_failed
from amazon_electra.beam_jobs.packing import packing as packer
from amazon_electra.beam_jobs.packing.packing import SPECIALS, Counts
from amazon_electra.beam_jobs.packing.plan import CorpusUnit, Packing, ShardsPlan
from amazon_electra.beam_jobs.packing.tokenization import TextIds, WordIds, load_tokenizer

SHARD_NAME = r"shard-\d{5,}\.parquet"


class PackIntoShards(beam.DoFn):
    """Packs units, with one tokenizer, and the words it remembers, for all units of a worker."""

    def __init__(self, packing: Packing) -> None:
        self.packing = packing
        self.tokenizer: WordIds | TextIds | None = None

    def process(self, unit: CorpusUnit) -> Iterator[tuple[int, int]]:
        if self.tokenizer is None:
            os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # a worker is one core's worth
            path = storage.join_path(self.packing.vocabulary, "tokenizer.json")
            self.tokenizer = load_tokenizer(storage.read_bytes(path).decode())
        work = partial(write_shard, unit, self.packing, self.tokenizer)
        first = unit.parts[0].path if unit.parts else ""
        for done in attempt(work, f"{unit.number:05d}", first, self.packing.failed):
            add_to_counters({n: getattr(done, n) for n in ("documents", "sequences", "tokens")}, {})
            yield unit.number, done.sequences


def write_shard(unit: CorpusUnit, packing: Packing, tokenizer: WordIds | TextIds) -> Counts:
    """Pack a unit unless its shard is there; return what it holds. No review: no shard."""
    path, schema = packing.shard_path(unit), packer.build_shard_schema(packing.vocabulary_size)
    if storage.exists(path):
        return Counts.of(read_footer(path))
    specials, packed = find_specials(tokenizer.tokenizer), Counts()

    def pack_windows() -> Iterator[pa.Table]:
        nonlocal packed
        for documents in unit.read_windows(packing.split):
            ids, sentence_offsets = tokenizer.encode_documents(documents)
            tokens = packer.Tokens(ids, sentence_offsets, documents.offsets.to_numpy())
            table, counts = packer.pack_documents(tokens, packing.max_length, *specials, schema)
            packed += counts
            if table.num_rows:
                yield table

    tables = pack_windows()
    if (first := next(tables, None)) is not None:
        footer = packing.describe_shard(unit)
        write_tables(path, schema, chain([first], tables), lambda: footer | asdict(packed))
    return packed


def remove_strays(packing: Packing, units: Sequence[CorpusUnit]) -> None:
    """Remove what is not a finished shard of exactly this job: another job's, a killed worker's."""
    expected = {os.path.basename(packing.shard_path(u)): packing.describe_shard(u) for u in units}
    storage.remove_matching(packing.output, rf"\.{SHARD_NAME}(\.\d+)+\.tmp")
    for name in list_shards(packing.output):
        path, footer = storage.join_path(packing.output, name), dict[str, Any]()
        with suppress(pa.ArrowInvalid):
            footer = read_footer(path)
        if name not in expected or not expected[name].items() <= footer.items():
            storage.remove_path(path)


def list_shards(output: str) -> list[str]:
    return [name for name in storage.list_names(output) if re.fullmatch(SHARD_NAME, name)]


def finish_shards(plan: ShardsPlan, measure: Callable[[], dict[str, Any]] = dict) -> dict[str, Any]:
    """Write shards.json, the mark of finished shards: the sum of all footers, and what `measure`
    returns; return its content. Raises UserError if no sample has no sequence, or if the corpus
    says it holds other reviews, and JobFailed if a unit failed.
    """
    check_failed(plan.packing.failed)
    packing, source = plan.packing, os.path.dirname(plan.corpus)
    names = list_shards(packing.output)
    footers = [read_footer(storage.join_path(packing.output, name)) for name in names]
    counts = sum(map(Counts.of, footers), Counts())
    why = f"no review of it in {source} has a token"
    require(counts.sequences or plan.is_sample, why, "split", packing.split)
    whole = counts.text_tokens + SPECIALS * counts.pieces
    assert counts.tokens == whole, f"tokens lost or invented: {counts}"
    packed = counts.documents + counts.empty_documents
    counted = f"{plan.corpus} counts {plan.documents} reviews in {packing.split}"
    why = f"{counted}, its files hold {packed}; run corpus_job again"
    require(plan.is_sample or plan.documents == packed, why, "corpus")
    result = {
        **asdict(counts),
        "fill": round(counts.tokens / (max(counts.sequences, 1) * packing.max_length), 5),
        "shards": len(footers),
        **packing.describe(),
        "made_of": plan.made_of,
        **measure(),
    }
    storage.write_json(storage.join_path(packing.output, "shards.json"), result)
    return result
