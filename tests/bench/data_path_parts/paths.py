"""The sides that are compared: the plain path, ours with Beam, and ours in a bare process pool."""

import gzip
import json
import multiprocessing
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from nltk.tokenize.punkt import PunktSentenceTokenizer
from tokenizers import Tokenizer

from beam_jobs import corpus_job, shards_job
from beam_jobs.config import CorpusOptions, ShardsOptions
from beam_jobs.corpus import prepare_pass, write_pass
from beam_jobs.corpus.folders import Folders
from beam_jobs.corpus.plan import plan_corpus
from beam_jobs.corpus.punkt_training import write_punkt
from beam_jobs.deduplication import duplicate_buckets, held_out_matches
from beam_jobs.job import storage
from beam_jobs.job.settings import read_options
from beam_jobs.packing import shard_files
from beam_jobs.packing.plan import Packing, Unit, plan_shards
from beam_jobs.reading import work_units
from beam_jobs.text import sentences
from beam_jobs.text.sentence_batches import BatchSplitter

MAX_LENGTH = 128
BATCH_REVIEWS = 1000
EVERYTHING = ("--split", "pretrain=100")  # so that both sides tokenize every review


def plain(dump: Path, text_field: str, punkt: Path, vocabulary: Path, output: Path) -> None:
    """json, NLTK's Punkt, tokenizers; ids of a review one after another in rows of 128. One thread.

    It is spared what would only slow it: sentences are not padded one by one, and rows are kept in
    16 bits.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    splitter = PunktSentenceTokenizer(sentences.decode_punkt(punkt.read_text()))
    tokenizer = Tokenizer.from_file(str(vocabulary / "tokenizer.json"))
    with open(output, "wb") as rows:
        for file in sorted(dump.iterdir()):
            with gzip.open(file, "rb") as stream:
                batch: list[list[str]] = []
                for line in stream:
                    text = json.loads(line).get(text_field)
                    if text:
                        batch.append(splitter.tokenize(text))
                    if len(batch) == BATCH_REVIEWS:
                        np.save(rows, padded(batch, tokenizer))
                        batch = []
                np.save(rows, padded(batch, tokenizer))


def padded(batch: list[list[str]], tokenizer: Tokenizer) -> np.ndarray:
    """[rows, 128], 0 where a review ends."""
    flat = [sentence for review in batch for sentence in review]
    encodings = iter(tokenizer.encode_batch_fast(flat, add_special_tokens=False))
    rows = []
    for review in batch:
        ids = [i for _ in review for i in next(encodings).ids]
        rows += [ids[start : start + MAX_LENGTH] for start in range(0, len(ids), MAX_LENGTH)]
    out = np.zeros((len(rows), MAX_LENGTH), np.uint16)
    for row, ids in zip(out, rows, strict=True):
        row[: len(ids)] = ids
    return out


def with_beam(dump: Path, vocabulary: Path, output: Path, workers: int) -> None:
    """Both jobs as a user starts them."""
    corpus, shards = corpus_arguments(dump, output), shards_arguments(vocabulary, output)
    mode = ["--direct_running_mode", "multi_processing" if workers > 1 else "in_memory"]
    for run, arguments in ((corpus_job.run, corpus), (shards_job.run, shards)):
        run([*arguments, *mode, "--direct_num_workers", str(workers)])


def corpus_arguments(dump: Path, output: Path) -> list[str]:
    return ["--input", str(dump), "--output", str(output / "corpus"), *EVERYTHING]


def shards_arguments(vocabulary: Path, output: Path) -> list[str]:
    return [
        "--corpus",
        str(output / "corpus"),
        "--vocabulary",
        str(vocabulary),
        "--output",
        str(output / "shards"),
    ]


def in_a_pool(dump: Path, vocabulary: Path, output: Path, workers: int) -> None:
    """The same units through the same functions, handed out by multiprocessing."""
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        pool_corpus(pool, dump, output)
        shards = plan_shards(
            read_options(ShardsOptions, shards_arguments(vocabulary, output), "", ""), []
        )
        units = sorted(shards.units, key=lambda unit: -unit.rows)
        pool.map(partial(pack_unit, packing=shards.packing), units, chunksize=1)


def pool_corpus(pool, dump: Path, output: Path) -> None:
    plan = plan_corpus(read_options(CorpusOptions, corpus_arguments(dump, output), "", ""), [])
    cut = partial(work_units.cut_file, size=plan.unit_bytes, folder=plan.folders.cuts)
    units = [unit for found in pool.map(cut, plan.files, chunksize=1) for unit in found]
    counts = pool.map(
        partial(prepare_pass.prepare_unit, preparation=plan.preparation), units, chunksize=1
    )
    punkt = write_punkt(counts, plan.folders, None)
    search = partial(find_duplicates, folder=plan.folders.prepared, counts=counts)
    copies: dict[str, list[bytes]] = {}
    for found in pool.map(search, duplicate_buckets.list_parts(counts), chunksize=1):
        for unit, rows in found:
            copies.setdefault(unit, []).append(rows)
    write = partial(write_unit, punkt=punkt, folders=plan.folders)
    pool.map(write, [(c, copies.get(c["unit"], [])) for c in counts], chunksize=1)
    storage.remove_path(plan.folders.work)
    storage.write_json(storage.join_path(plan.folders.output, "corpus.json"), {})


def find_duplicates(
    part: tuple[int, int, int], folder: str, counts: list[dict]
) -> list[tuple[str, bytes]]:
    return list(duplicate_buckets.find_exact_duplicates(part, folder, counts, ()))


_remembered: dict[str, object] = {}
"""One splitter and one tokenizer a process, as Beam's DoFns have."""


def write_unit(unit: tuple[dict, list[bytes]], punkt: str, folders: Folders) -> None:
    counts, copies = unit
    if "splitter" not in _remembered:
        _remembered["splitter"] = BatchSplitter(sentences.decode_punkt(punkt))
    dropped = write_pass.DroppedRows(*map(write_pass.unpack_rows, (copies, [], [])))
    nothing_shared = held_out_matches.UnitMatches(counts["unit"], [], ())
    splitter: Any = _remembered["splitter"]
    write_pass.write_unit(counts, dropped, 0, folders, splitter, nothing_shared)


def pack_unit(unit: Unit, packing: Packing) -> None:
    if "word_ids" not in _remembered:
        _remembered["word_ids"] = shard_files.load_word_ids(packing.vocabulary)
    shard_files.write_shard(unit, packing, _remembered["word_ids"])  # type: ignore[arg-type]
