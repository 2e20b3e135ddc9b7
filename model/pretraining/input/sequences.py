"""Reads shards into fixed-shape batches, row groups shuffled by seed and epoch, then the sequences
of each window of row groups. A place is one number, the sequences consumed over all processes.
"""

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from amazon_electra.beam_jobs.core.errors import refuse, require
from amazon_electra.beam_jobs.core.nesting import read_json
from amazon_electra.beam_jobs.core.special_tokens import SHARDS_VERSION
from amazon_electra.beam_jobs.core.storage import hash_file

FOOTER_KEY = b"amazon_electra"
SAMPLED_SEQUENCES = 4096  # from which the cost of a sequence is estimated
WINDOW_SEQUENCES = 1 << 17  # shuffled together; at 128 tokens about 70 MB


@dataclass(frozen=True)
class RowGroup:
    """A row group of a shard."""

    path: Path
    index: int
    sequences: int


@dataclass(frozen=True)
class Rows:
    """Packed sequences in memory, padded to one length with id 0."""

    input_ids: NDArray[np.uint32]  # [sequences, length]
    document_starts: NDArray[np.bool_]  # [sequences, length]
    sentence_starts: NDArray[np.bool_]  # [sequences, length]
    lengths: NDArray[np.int64]  # [sequences], tokens that are not padding

    def take(self, which: NDArray[np.int64] | slice) -> "Rows":
        return Rows(*(getattr(self, one.name)[which] for one in fields(self)))

    @staticmethod
    def join(parts: list["Rows"]) -> "Rows":
        if len(parts) == 1:
            return parts[0]
        arrays = ([getattr(part, one.name) for part in parts] for one in fields(Rows))
        return Rows(*map(np.concatenate, arrays))


@dataclass(frozen=True)
class Shards:
    """A folder of shards whose footers agree with each other and with the vocabulary."""

    folder: Path
    row_groups: tuple[RowGroup, ...]
    vocabulary_fingerprint: str
    vocabulary_size: int
    max_length: int
    sequences: int
    tokens: int
    fingerprint: str  # of names, sizes and footers: distinguishes sets of shards without their rows

    @staticmethod
    def open(folder: Path, field: str = "shards", split: str = "pretrain") -> "Shards":
        """Open a folder of shards; UserError for another split, damaged or unfinished ones."""
        paths = sorted(folder.glob("shard-*.parquet"))
        is_whole = paths and (folder / "shards.json").exists()
        require(is_whole, "no shard-*.parquet with shards.json there", field, folder)
        read = [_read_footer(path) for path in paths]
        footers, first = [footer for footer, _ in read], read[0][0]
        for path, footer in zip(paths, footers, strict=True):
            for name in ("vocabulary_fingerprint", "vocabulary_size", "max_length", "split"):
                is_same = footer.get(name) == first.get(name)
                require(is_same, f"{path}: {name} is not as in {paths[0].name}")
        made_of = first.get("split")
        require(made_of == split, f"made of the split {made_of}, not {split}", field, folder)
        totals = read_json(folder / "shards.json")
        counts = {"shards": len(paths), "sequences": sum(one["sequences"] for one in footers)}
        is_whole = all(totals[name] == number for name, number in counts.items())
        require(is_whole, f"shards.json says {totals}, there are {counts}", field, folder)
        tokenizer = folder / "vocabulary" / "tokenizer.json"
        is_own = tokenizer.exists() and hash_file(tokenizer) == first["vocabulary_fingerprint"]
        require(is_own, f"{tokenizer} is not the one the shards were made with", field, folder)
        listing = [[p.name, p.stat().st_size, f] for p, f in zip(paths, footers, strict=True)]
        return Shards(
            folder=folder,
            row_groups=tuple(group for _, groups in read for group in groups),
            vocabulary_fingerprint=first["vocabulary_fingerprint"],
            vocabulary_size=first["vocabulary_size"],
            max_length=first["max_length"],
            sequences=sum(footer["sequences"] for footer in footers),
            tokens=sum(footer["tokens"] for footer in footers),
            fingerprint=hashlib.sha256(json.dumps(listing, sort_keys=True).encode()).hexdigest(),
        )

    @property
    def vocabulary(self) -> Path:
        return self.folder / "vocabulary"

    def sample_rows(self) -> Rows:
        """Return the sequences of the first row groups, SAMPLED_SEQUENCES at least if there are."""
        ends = np.cumsum([group.sequences for group in self.row_groups])
        return self.read_groups(
            list(self.row_groups[: np.searchsorted(ends, SAMPLED_SEQUENCES) + 1])
        )

    def read_groups(self, groups: list[RowGroup]) -> Rows:
        return Rows.join([_read_group(group, self.max_length) for group in groups])


def _read_footer(path: Path) -> tuple[dict[str, Any], list[RowGroup]]:
    why = f"{path}: damaged, or no shard; copy it again, or make it again"
    with refuse(pa.ArrowInvalid, KeyError, message=why):
        file = pq.read_metadata(path)
        footer: dict[str, Any] = json.loads((file.metadata or {})[FOOTER_KEY])
    version = footer["version"]
    require(version == SHARDS_VERSION, f"{path}: version {version}, not {SHARDS_VERSION}")
    rows = [file.row_group(i).num_rows for i in range(file.num_row_groups)]
    return footer, [RowGroup(path, i, sequences) for i, sequences in enumerate(rows)]


def _read_group(group: RowGroup, length: int) -> Rows:
    columns = ["input_ids", "document_starts", "sentence_starts"]
    table = pq.ParquetFile(group.path).read_row_group(group.index, columns=columns)
    ids, offsets = _flatten_lists(table, "input_ids")
    lengths = np.diff(offsets)
    padded = np.zeros((len(lengths), length), dtype=np.uint32)
    padded[np.arange(length) < lengths[:, None]] = ids
    return Rows(
        padded,
        _read_flags(table, "document_starts", length),
        _read_flags(table, "sentence_starts", length),
        lengths,
    )


def _flatten_lists(table: Any, column: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    lists = table.column(column).combine_chunks()
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return lists.values.to_numpy()[offsets[0] : offsets[-1]], offsets - offsets[0]


def _read_flags(table: Any, column: str, length: int) -> NDArray[np.bool_]:
    """Return [sequences, length], True at the offsets that the column lists."""
    values, offsets = _flatten_lists(table, column)
    flags = np.zeros((len(offsets) - 1, length), dtype=np.bool_)
    flags[np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), values] = True
    return flags


class Stream:
    """Yields sequences without end, epoch after epoch, from any place on."""

    def __init__(self, shards: Shards, seed: int, window_sequences: int = WINDOW_SEQUENCES) -> None:
        self._shards, self._seed, self._window_sequences = shards, seed, window_sequences
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="shards")
        self._windows: dict[tuple[int, int], Future[Rows]] = {}

    def iterate_batches(self, position: int, size: int) -> Iterator[Rows]:
        """Yield batches of `size` sequences, from sequence number `position` on."""
        source = self._iterate_windows(position)
        held, used = next(source), 0
        while True:
            parts, missing = [], size
            while used + missing > len(held.lengths):
                parts.append(held.take(slice(used, None)))
                missing -= len(held.lengths) - used
                held, used = next(source), 0
            parts.append(held.take(slice(used, used + missing)))
            used += missing
            yield Rows.join(parts)

    def _iterate_windows(self, position: int) -> Iterator[Rows]:
        epoch, inside = divmod(position, self._shards.sequences)
        while True:
            windows = self._plan_epoch(epoch)
            for number, groups in enumerate(windows):
                sequences = sum(group.sequences for group in groups)
                if inside >= sequences:
                    inside -= sequences
                    continue
                self._start_reading(epoch, number)
                rows = self._windows.pop((epoch, number)).result()
                following = (epoch, number + 1) if number + 1 < len(windows) else (epoch + 1, 0)
                self._start_reading(*following)
                yield rows.take(slice(inside, None))
                inside = 0
            epoch += 1

    def _plan_epoch(self, epoch: int) -> list[list[RowGroup]]:
        order = np.random.default_rng([self._seed, epoch]).permutation(len(self._shards.row_groups))
        windows: list[list[RowGroup]] = [[]]
        held = 0
        for index in order:
            if held >= self._window_sequences:
                windows.append([])
                held = 0
            windows[-1].append(self._shards.row_groups[index])
            held += self._shards.row_groups[index].sequences
        return windows

    def _start_reading(self, epoch: int, number: int) -> None:
        if (epoch, number) not in self._windows:

            def read_window() -> Rows:
                rows = self._shards.read_groups(self._plan_epoch(epoch)[number])
                order = np.random.default_rng([self._seed, epoch, number])
                return rows.take(order.permutation(len(rows.lengths)))

            self._windows[epoch, number] = self._reader.submit(read_window)
