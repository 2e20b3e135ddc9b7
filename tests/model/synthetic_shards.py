"""A folder of shards as the shards job writes it, of any size, without the shards job: a language
of a few words.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import BertWordPieceTokenizer

from amazon_electra.beam_jobs.core.special_tokens import SHARDS_VERSION

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write_vocabulary(folder: Path, size: int) -> str:
    """A vocabulary of `size` entries; returns its fingerprint."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [*SPECIAL, *(f"word{i}" for i in range(size - len(SPECIAL)))]
    tokenizer = BertWordPieceTokenizer({word: i for i, word in enumerate(words)}, lowercase=True)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "BertTokenizer", "model_max_length": 512, "do_lower_case": True}
    config |= {f"{name[1:-1].lower()}_token": name for name in SPECIAL}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()


def document(rng: np.random.Generator, size: int, longest: int, words: int):
    """Ids of one document of one to three sentences of less than `words` words, and where the
    sentences start. Each word depends on the one before, so that there is something to learn.
    """
    ids, starts = [2], []
    word = int(rng.integers(5, size))
    for _ in range(int(rng.integers(1, 4))):
        starts.append(len(ids))
        for _ in range(int(rng.integers(3, words))):
            if len(ids) < longest - 1:
                ids.append(word)
            frequent = max(8, size // 4)
            word = 5 + (word * 7 + int(rng.integers(0, 3))) % frequent
    return [*ids, 3], [start for start in starts if start < longest - 1]


def pack(rng: np.random.Generator, size: int, length: int, words: int, fills: bool):
    row: dict[str, list[int]] = {"input_ids": [], "document_starts": [], "sentence_starts": []}
    while True:
        ids, starts = document(rng, size, length, words)
        offset = len(row["input_ids"])
        if offset + len(ids) > length:
            if not fills or length - offset < 3:
                return row
            ids = [*ids[: length - offset - 1], 3]
            starts = [start for start in starts if start < len(ids) - 1]
        row["document_starts"].append(offset)
        row["sentence_starts"] += [offset + start for start in starts]
        row["input_ids"] += ids


def write_shards(
    folder: Path,
    sequences: int = 256,
    size: int = 100,
    length: int = 32,
    shards: int = 2,
    seed: int = 0,
    split: str = "pretrain",
    words: int = 12,
    fills: bool = False,
    group: int = 32,
) -> Path:
    """Write the folder, of row groups of `group` rows, and return it. With `fills` the last
    document of a row is cut to fit, so that rows are as full as real ones, else left out.
    """
    fingerprint = write_vocabulary(folder / "vocabulary", size)
    rng = np.random.default_rng(seed)
    written = 0
    for number in range(shards):
        rows = [pack(rng, size, length, words, fills) for _ in range(sequences // shards)]
        ids = pa.uint16() if size <= 1 << 16 else pa.uint32()
        columns = ((name, [row[name] for row in rows]) for name in rows[0])
        table = pa.table({name: pa.array(own, pa.list_(ids)) for name, own in columns})
        footer = {
            "version": SHARDS_VERSION,
            "vocabulary_fingerprint": fingerprint,
            "vocabulary_size": size,
            "max_length": length,
            "split": split,
            "sequences": len(rows),
            "tokens": sum(len(row["input_ids"]) for row in rows),
            "documents": sum(len(row["document_starts"]) for row in rows),
            "sentences": sum(len(row["sentence_starts"]) for row in rows),
        }
        table = table.replace_schema_metadata({"amazon_electra": json.dumps(footer)})
        file = folder / f"shard-{number:05}.parquet"
        pq.write_table(table, file, row_group_size=group, compression="zstd")
        written += len(rows)
    (folder / "shards.json").write_text(json.dumps({"shards": shards, "sequences": written}))
    return folder
