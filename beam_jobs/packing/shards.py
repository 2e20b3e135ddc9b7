"""The shards of a job: planned as units of rows before any work begins, packed, added up.

Units follow from the corpus alone, never from the number of workers: runs of row groups over one or
more files; small files are joined, so that packing has enough to choose from.
"""

import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from apache_beam.options.pipeline_options import PipelineOptions

from amazon_electra.beam_jobs.config import ShardsConfig
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import refuse, require
from amazon_electra.beam_jobs.core.files import hash_bytes, hash_stream
from amazon_electra.beam_jobs.core.parquet import read_footer, write_tables
from amazon_electra.beam_jobs.core.special_tokens import SHARDS_VERSION, count_rows, find_specials
from amazon_electra.beam_jobs.engine import beam_options
from amazon_electra.beam_jobs.engine.units import add_to_counters, attempt, check_failed
from amazon_electra.beam_jobs.packing import packing as packer
from amazon_electra.beam_jobs.packing.packing import Counts
from amazon_electra.beam_jobs.packing.tokenization import TextIds, WordIds, load_tokenizer

VOCABULARY_FILES = ("tokenizer.json", "tokenizer_config.json")
WORDS = "vocab.txt"  # beside them where the tokenizer is WordPiece: its entries, one a line
TARGET_UNITS = 64  # enough to keep many workers evenly busy, between the two bounds
MIN_UNIT_ROWS = 4096  # fewer reviews leave packing too little to choose from
MAX_UNIT_ROWS = 1 << 17  # more reviews take long to repeat when a worker dies
WINDOW_ROWS = 8_192  # tokenized and packed at a time; twice as many fill as well, take 75 MB more
REVIEW_BYTES = 500  # of text, on average: only to choose how many workers are worth starting
SHARD_NAME = r"shard-\d{5,}\.parquet"


@dataclass(frozen=True)
class RowGroups:
    """Row groups `first` to `last` (exclusive) of a corpus file."""

    path: str
    first: int
    last: int
    rows: int


@dataclass(frozen=True)
class CorpusUnit:
    """One shard's worth of corpus; a shard that bears its `digest` was made from these rows."""

    number: int
    parts: tuple[RowGroups, ...]
    digest: str

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def read_windows(self, split: str) -> Iterator[pa.ListArray]:
        """Yield the sentences of one split's reviews, about WINDOW_ROWS reviews at once."""
        waiting: list[pa.ListArray] = []
        for part in self.parts:
            groups, columns = list(range(part.first, part.last)), ["split", "sentences"]
            with storage.open_bytes(part.path) as file:
                source = pq.ParquetFile(file)
                for batch in source.iter_batches(WINDOW_ROWS // 4, groups, columns):
                    chosen = pc.equal(batch["split"].cast(pa.string()), split)
                    waiting.append(batch["sentences"].filter(chosen))
                    if sum(map(len, waiting)) >= WINDOW_ROWS:
                        yield pa.concat_arrays(waiting)
                        waiting = []
        if sum(map(len, waiting)):
            yield pa.concat_arrays(waiting)


@dataclass(frozen=True)
class Packing:
    """Everything a shard depends on beside its unit, and the folder it goes to."""

    vocabulary: str
    vocabulary_fingerprint: str
    vocabulary_size: int
    max_length: int
    split: str
    output: str

    @property
    def failed(self) -> str:
        """Folder that says why units failed."""
        return storage.join_path(self.output, "_failed")

    def shard_path(self, unit: CorpusUnit) -> str:
        return storage.join_path(self.output, f"shard-{unit.number:05d}.parquet")

    def describe(self) -> dict[str, Any]:
        names = ("max_length", "split", "vocabulary_size", "vocabulary_fingerprint")
        return {name: getattr(self, name) for name in names}

    def describe_shard(self, unit: CorpusUnit) -> dict[str, Any]:
        """Return the part of a shard's footer that is known before the unit is read."""
        return {**self.describe(), "version": SHARDS_VERSION, "unit": unit.digest}


@dataclass(frozen=True)
class ShardsPlan:
    """What is packed, how, and where the shards go."""

    packing: Packing
    units: Sequence[CorpusUnit]
    engine: PipelineOptions
    corpus: str  # path of its corpus.json
    documents: int  # reviews in the split as corpus.json counts them
    made_of: dict[str, Any]  # the corpus, and the evaluation texts kept out of it
    is_sample: bool  # whether some reviews of the split are enough, or none where it has none


def plan_shards(
    config: ShardsConfig, packing: Packing, corpus: str, flags: Sequence[str]
) -> ShardsPlan:
    """Return the plan of a job on a corpus."""
    units, path = plan_corpus_units(corpus), storage.join_path(corpus, "corpus.json")
    content = storage.read_bytes(path)
    result = json.loads(content)
    why = "its corpus.json counts no splits; run corpus_job again"
    require("splits" in result, why, "corpus", corpus)
    documents = result["splits"].get(config.split, 0)
    made_of = {"corpus": hash_bytes(content), "withheld": result.get("withheld_files", [])}
    if "withheld_corpus" in result:
        made_of["withheld_corpus"] = result["withheld_corpus"]
    if wanted := config.sample_reviews:  # the first units: hashes spread a split over all
        needed = sum(unit.rows for unit in units) * wanted / max(documents, 1)
        before = itertools.accumulate((unit.rows for unit in units), initial=0)
        chosen = [unit for unit, rows in zip(units, before, strict=False) if rows < needed]
        units = chosen if documents else units[:1]
    size = sum(unit.rows for unit in units) * REVIEW_BYTES
    engine = beam_options.resolve_beam_options(list(flags), size)
    return ShardsPlan(packing, units, engine, path, documents, made_of, bool(wanted))


def plan_corpus_units(corpus: str) -> list[CorpusUnit]:
    """Return all units of a corpus folder, in the order of its files."""
    names = storage.list_names(corpus)
    why = "no corpus.json in it: name the folder of a corpus_job that has ended"
    require("corpus.json" in names, why, "corpus", corpus)
    broken = "cannot be read ({}); run corpus_job again"
    groups, digests = [], {}
    for name in names:
        if name.startswith("corpus-") and name.endswith(".parquet"):
            path = storage.join_path(corpus, name)
            with (
                refuse(pa.ArrowInvalid, OSError, message=broken, field="corpus", value=path),
                storage.open_bytes(path) as file,
            ):
                metadata = pq.read_metadata(file)
                file.seek(-(metadata.serialized_size + 8), 2)  # the footer bounds every column
                digests[path] = hash_stream(file)
            groups += [
                RowGroups(path, i, i + 1, metadata.row_group(i).num_rows)
                for i in range(metadata.num_row_groups)
            ]
    wanted = min(max(sum(g.rows for g in groups) // TARGET_UNITS, MIN_UNIT_ROWS), MAX_UNIT_ROWS)
    units = []
    for number, parts in enumerate(group_row_groups(groups, wanted)):
        made_of = "\n".join(f"{digests[part.path]} {part.first} {part.last}" for part in parts)
        units.append(CorpusUnit(number, parts, hash_bytes(made_of.encode())))
    return units


def group_row_groups(groups: list[RowGroups], rows_wanted: int) -> Iterator[tuple[RowGroups, ...]]:
    """Yield row groups in runs of at least `rows_wanted` rows; neighbours become one part."""
    run: list[RowGroups] = []
    for group in groups:
        if run and run[-1].path == group.path:
            run[-1] = RowGroups(group.path, run[-1].first, group.last, run[-1].rows + group.rows)
        else:
            run.append(group)
        if sum(part.rows for part in run) >= rows_wanted:
            yield tuple(run)
            run = []
    if run:
        yield tuple(run)


def prepare_output(config: ShardsConfig, vocabulary: str, output: str) -> Packing:
    """Copy the vocabulary byte for byte and remove shards.json, the mark of a finished run."""
    places = {n: storage.join_path(vocabulary, n) for n in (*VOCABULARY_FILES, WORDS)}
    files = {n: storage.read_bytes(p) for n, p in places.items() if storage.exists(p)}
    missing = ", ".join(name for name in VOCABULARY_FILES if name not in files)
    why = f"no {missing} in it; give the folder that model.vocabulary or model.origin wrote"
    require(not missing, why, "vocabulary", vocabulary)
    why = "its tokenizer.json is not an encoder's tokenizer ({})"
    with refuse(Exception, message=why, field="vocabulary", value=vocabulary):  # of tokenizers
        tokenizer = load_tokenizer(files["tokenizer.json"].decode()).tokenizer
    size = count_rows(tokenizer)
    storage.check_output(output)
    storage.remove_path(storage.join_path(output, "shards.json"))
    folder = storage.join_path(output, "vocabulary")
    for name, content in files.items():
        storage.write_bytes(storage.join_path(folder, name), content)
    fingerprint = hash_bytes(files["tokenizer.json"])
    packing = Packing(folder, fingerprint, size, config.max_length, config.split, output)
    storage.remove_path(packing.failed)
    return packing


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
        write_tables(
            path, schema, itertools.chain([first], tables), lambda: footer | asdict(packed)
        )
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
