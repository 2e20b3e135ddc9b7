"""Corpus (or general text) + vocabulary → shards: packed sequences of token ids, ready for pre-training.

    python -m beam_jobs.shards_job --corpus corpus --vocabulary vocabulary --output shards --max_length 128
    python -m beam_jobs.shards_job --general_text wiki/*.gz --vocabulary vocabulary --output control --max_length 128

One pass over units of work (shard_units.py, general_text.py): each becomes one shard, or none where the split has
nothing in it. A unit that an earlier, interrupted run has finished is recognised by the shard's footer and not done
again.

    units ─► pack into a shard ─► (counts are read back from the shards' footers)
"""

import argparse
import dataclasses
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import apache_beam as beam
import pyarrow as pa
from tokenizers import Tokenizer

from beam_jobs import engine, evaluation_texts, general_text, options, parquet_shards, shard_units, storage
from beam_jobs.command import UserMistake, main
from beam_jobs.general_text import TextUnit
from beam_jobs.packing import Counts, Tokens, pack
from beam_jobs.progress import Progress, progress
from beam_jobs.shard_units import CorpusUnit
from beam_jobs.tokenization import WordIds

VERSION = 1  # of the footer
PACKING_VERSION = 4  # to be raised when the same corpus gives other bytes
SHORTEST, LONGEST = 16, 65_535  # tokens; positions in a sequence are stored in 16 bits
VOCABULARY_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")
SPLITS = ("pretrain", "train", "dev", "test")
TEXT_BYTES_PER_ROW = 500  # of reviews, on average: only to choose how many workers are worth starting

SHARD_NAME = r"shard-\d{5,}\.parquet"

Unit = CorpusUnit | TextUnit


@dataclasses.dataclass(frozen=True)
class Packing:
    """Everything a shard depends on beside its unit, and where it goes."""

    vocabulary: str
    vocabulary_fingerprint: str
    vocabulary_size: int
    max_length: int
    split: str
    output: str

    def shard(self, unit: Unit) -> str:
        return storage.join(self.output, f"shard-{unit.number:05d}.parquet")

    def identity(self, unit: Unit) -> dict[str, Any]:
        """The part of a footer that is known beforehand."""
        return {
            "version": VERSION,
            "packing_version": PACKING_VERSION,
            "vocabulary_fingerprint": self.vocabulary_fingerprint,
            "vocabulary_size": self.vocabulary_size,
            "max_length": self.max_length,
            "split": self.split,
            "unit": unit.digest,
        }


def parse(argv: list[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        "shards_job",
        description="A corpus to packed sequences of token ids. Any Apache Beam option may follow.",
        allow_abbrev=False,
    )
    option = parser.add_argument
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--corpus", help="folder that corpus_job wrote")
    source.add_argument("--general_text", nargs="+", help="instead: text files, plain or packed, one document a block")
    option("--punkt", help="of --general_text: Punkt parameters, punkt.json of a corpus (default: trained on the text)")
    option("--withhold", nargs="+", default=[], help="of --general_text: evaluation files whose texts must not get in")
    option("--withhold_corpus", default="", help="of --general_text: corpus whose dev and test reviews must not get in")
    option("--vocabulary", required=True, help="folder that model.vocabulary wrote")
    option("--output", required=True, help="folder of the shards")
    option("--max_length", type=int, default=128, help="tokens of a sequence (default %(default)s)")
    option("--split", choices=SPLITS, default="pretrain", help="side of the corpus (default %(default)s)")
    args, flags = parser.parse_known_args(argv)
    if not SHORTEST <= args.max_length <= LONGEST:
        raise UserMistake(f"--max_length: {args.max_length}; give {SHORTEST} to {LONGEST} tokens")
    if args.general_text and args.split != "pretrain":
        raise UserMistake(f"--split: {args.split}; general text is for pre-training only, leave --split out")
    if args.corpus and args.punkt:
        raise UserMistake("--punkt: a corpus is in sentences already; leave it out, or give --general_text")
    if args.corpus and args.withhold_corpus:
        raise UserMistake("--withhold_corpus: the splits of a corpus share no text; here it is for --general_text")
    if args.corpus and args.withhold:
        raise UserMistake("--withhold: corpus_job has it for a corpus; here it is for --general_text")
    return args, flags


def run(argv: list[str] | None = None) -> dict[str, Any]:
    started, cpu = time.monotonic(), sum(os.times()[:4])
    args, flags = parse(argv)
    packing = prepare_output(args)
    units = plan(args)
    clear_strays(packing, units)
    beam_options = options.resolve(flags, sum(unit.rows for unit in units) * (TEXT_BYTES_PER_ROW if args.corpus else 1))
    with progress(len(units), "units", f"shards ({options.describe(beam_options)})") as shown:
        graph = partial(build, units=units, packing=packing)
        engine.run_graph(beam_options, graph, lambda: show(shown, units, packing))
        if options.only_stages(beam_options):
            return {"staged": options.describe(beam_options), "units": len(units)}
        show(shown, units, packing, len(units))
    result = add_up(packing, args.corpus or "the text") | {
        "made_of": made_of(args.corpus, args.withhold, args.withhold_corpus),
        "seconds": round(time.monotonic() - started, 3),
        "cpu_seconds": round(sum(os.times()[:4]) - cpu, 3),
    }
    storage.write_json(storage.join(args.output, "shards.json"), result)
    return result


def plan(args: argparse.Namespace) -> Sequence[Unit]:
    if args.corpus:
        return shard_units.plan(args.corpus)
    return general_text.plan(args.general_text, args.output, args.punkt, args.withhold, args.withhold_corpus)


def build(pipeline: beam.Pipeline, units: Sequence[Unit], packing: Packing) -> beam.PCollection:
    return (
        pipeline
        | "List units" >> beam.Create(engine.largest_first(units, lambda unit: unit.rows))
        | "Pack into shards" >> beam.ParDo(PackIntoShards(packing))
    )


def show(shown: Progress, units: Sequence[Unit], packing: Packing, done: int | None = None) -> None:
    """Units of which there is a shard (or `done`, for some give none), and the reviews or bytes in them."""
    there = set(shards(packing))
    finished = [unit for unit in units if os.path.basename(packing.shard(unit)) in there]
    shown.update(done or len(finished), **{units[0].rows_are: sum(unit.rows for unit in finished)})


class PackIntoShards(beam.DoFn):
    """Keeps one tokenizer, and the words it remembers, for all units of a worker."""

    def __init__(self, packing: Packing) -> None:
        self.packing = packing
        self.word_ids: WordIds | None = None

    def process(self, unit: Unit) -> Iterator[tuple[int, int]]:
        if self.word_ids is None:
            self.word_ids = load_word_ids(self.packing.vocabulary)
        yield unit.number, make_shard(unit, self.packing, self.word_ids).sequences


def load_word_ids(vocabulary: str) -> WordIds:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # a worker is one core's worth
    content = storage.read_bytes(storage.join(vocabulary, "tokenizer.json"))
    return WordIds(Tokenizer.from_str(content.decode()))


def make_shard(unit: Unit, packing: Packing, word_ids: WordIds) -> Counts:
    """Packs a unit unless its shard is already there; returns what the shard holds."""
    if storage.exists(packing.shard(unit)):
        return counts_in(parquet_shards.read_footer(packing.shard(unit)))
    windows = Windows(unit, packing, word_ids)
    first = next(windows.tables, None)
    if first is None:
        return Counts()
    tables = (table for part in ([first], windows.tables) for table in part)
    parquet_shards.write_tables(
        packing.shard(unit),
        parquet_shards.shard_schema(packing.vocabulary_size),
        tables,
        lambda: packing.identity(unit) | dataclasses.asdict(windows.counts),
    )
    return windows.counts


class Windows:
    """The packed windows of a unit, and the counts of those already taken."""

    def __init__(self, unit: Unit, packing: Packing, word_ids: WordIds) -> None:
        self.counts = Counts()
        self.tables = self._pack_each(unit, packing, word_ids)

    def _pack_each(self, unit: Unit, packing: Packing, word_ids: WordIds) -> Iterator[pa.Table]:
        schema = parquet_shards.shard_schema(packing.vocabulary_size)
        for documents in unit.windows(packing.split):
            ids, sentence_offsets = word_ids.encode(documents.flatten())
            tokens = Tokens(ids, sentence_offsets, documents.offsets.to_numpy())
            table, counts = pack(tokens, packing.max_length, word_ids.cls_id, word_ids.sep_id, schema)
            self.counts += counts
            if table.num_rows:
                yield table


def prepare_output(args: argparse.Namespace) -> Packing:
    """Copies the vocabulary byte for byte and takes away the mark of a finished run."""
    content, size = vocabulary_of(args.vocabulary)
    storage.check_writable(args.output)
    storage.remove(storage.join(args.output, "shards.json"))
    folder = storage.join(args.output, "vocabulary")
    for name, copied in content.items():
        storage.write_bytes(storage.join(folder, name), copied)
    return Packing(
        vocabulary=folder,
        vocabulary_fingerprint=sha256(content["tokenizer.json"]),
        vocabulary_size=size,
        max_length=args.max_length,
        split=args.split,
        output=args.output,
    )


def vocabulary_of(folder: str) -> tuple[dict[str, bytes], int]:
    """Its files, and the number of its entries."""
    for name in VOCABULARY_FILES:
        if not storage.exists(storage.join(folder, name)):
            raise UserMistake(f"--vocabulary: no {name} in {folder}; give the folder model.vocabulary wrote")
    content = {name: storage.read_bytes(storage.join(folder, name)) for name in VOCABULARY_FILES}
    try:
        tokenizer = Tokenizer.from_str(content["tokenizer.json"].decode())
        WordIds(tokenizer)
    except Exception as error:  # tokenizers raises nothing more special, nor does what WordIds asks of one of BERT's
        raise UserMistake(f"--vocabulary: {folder}/tokenizer.json is not a WordPiece tokenizer ({error})") from None
    return content, tokenizer.get_vocab_size()


def clear_strays(packing: Packing, units: Sequence[Unit]) -> None:
    """Removes what is not a finished shard of exactly this job: leftovers of other ones, or of a killed worker."""
    expected = {os.path.basename(packing.shard(unit)): packing.identity(unit) for unit in units}
    storage.remove_named(packing.output, rf"\.{SHARD_NAME}\.\d+\.tmp")
    for name in shards(packing):
        path = storage.join(packing.output, name)
        if not is_finished(path, expected.get(name)):
            storage.remove(path)


def is_finished(path: str, identity: dict[str, Any] | None) -> bool:
    try:
        footer = parquet_shards.read_footer(path)
    except pa.ArrowInvalid:
        return False
    return identity is not None and identity.items() <= footer.items()


def shards(packing: Packing) -> list[str]:
    return [name for name in storage.names_in(packing.output) if re.fullmatch(SHARD_NAME, name)]


def counts_in(footer: dict[str, Any]) -> Counts:
    return Counts(**{field.name: footer[field.name] for field in dataclasses.fields(Counts)})


def add_up(packing: Packing, corpus: str) -> dict[str, Any]:
    """The result: the sum of what all footers say, checked against what the corpus says it has."""
    footers = [parquet_shards.read_footer(storage.join(packing.output, name)) for name in shards(packing)]
    counts = sum(map(counts_in, footers), Counts())
    if not counts.sequences:
        raise UserMistake(f"--split: no review of split {packing.split!r} in {corpus} has a token; give a larger dump")
    assert counts.tokens == counts.text_tokens + 2 * counts.pieces, f"tokens lost or invented: {counts}"
    check_documents(counts, packing.split, corpus)
    return dataclasses.asdict(counts) | {
        "fill": round(counts.tokens / (counts.sequences * packing.max_length), 5),
        "shards": len(footers),
        "max_length": packing.max_length,
        "split": packing.split,
        "vocabulary_size": packing.vocabulary_size,
        "vocabulary_fingerprint": packing.vocabulary_fingerprint,
    }


def made_of(corpus: str, withhold: Sequence[str], withhold_corpus: str) -> dict[str, Any]:
    """For whoever asks what pre-training has seen: the corpus, and the evaluation texts that were kept out.

    A corpus is known by the SHA-256 of its corpus.json; where there is none, by nothing.
    """
    content = described(corpus)
    if not content:
        files = storage.expand(list(withhold), "--withhold")
        kept_out = {"withheld_corpus": sha256(described(withhold_corpus))} if withhold_corpus else {}
        return {"corpus": "", "withheld": sorted(map(evaluation_texts.named, files)), **kept_out}
    withheld = json.loads(content).get("agreed", {}).get("withhold", [])
    return {"corpus": sha256(content), "withheld": withheld}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def described(corpus: str) -> bytes:
    """Its corpus.json; nothing where there is none."""
    path = storage.join(corpus, "corpus.json") if corpus else ""
    return storage.read_bytes(path) if path and storage.exists(path) else b""


def check_documents(counts: Counts, split: str, corpus: str) -> None:
    """As many reviews in the shards as corpus_job counted for this split, where its result is there to tell."""
    splits = json.loads(described(corpus) or "{}").get("splits", {})
    found = counts.documents + counts.empty_documents
    if splits and splits.get(split, 0) != found:
        path = storage.join(corpus, "corpus.json")
        raise UserMistake(
            f"--corpus: {path} counts {splits.get(split, 0)} reviews in {split!r}, its files hold {found}; "
            "run corpus_job again"
        )


if __name__ == "__main__":
    main(run)
