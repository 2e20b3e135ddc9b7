"""Corpora that came before (`--seen`): a dump that arrives adds what is new in it, as if all had come at once.

Three dumps arriving in turn, each with `--seen` of the corpora before it, leave together the reviews and sentences of
one corpus of all three in that order (`--input A --input B --input C`) with the same Punkt parameters. For that all
must agree on what happens to a text; what is compared is `corpus_options.agreed`, which every corpus.json holds.

Of an earlier corpus only the column of text hashes is read, once: sorted, 16 bytes a review, into the work folder,
from where each bucket of the search for duplicates takes its stretch. That costs 0.23 µs of CPU for each earlier review
(measured from 2,000 to 4,000,000 of them), about a four-hundredth of what a new one costs.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from beam_jobs import deduplication, storage
from beam_jobs.command import UserMistake

PACK_ROWS = 1 << 20  # texts read and sorted at once, at least: 16 MiB of hashes, some 100 while they are sorted
Pack = dict[str, Any]  # path of sorted hashes, offsets in them


@dataclass(frozen=True)
class Seen:
    """What is known of the earlier corpora before the job starts."""

    folders: tuple[str, ...] = ()
    reviews: int = 0
    runs: tuple[tuple[str, ...], ...] = ()  # their Parquet files, PACK_ROWS texts or more together
    punkt: str | None = None  # path of the parameters
    digests: tuple[str, ...] = ()


def look_at(folders: list[str], agreed: dict[str, Any], output: str, punkt: str | None) -> Seen:
    """Refuses what is not a whole corpus, or was made otherwise than this one will be."""
    folders = list(dict.fromkeys(absolute(folder) for folder in folders))
    if not folders:
        return Seen()
    files: list[tuple[str, int]] = []
    digests = []
    for folder in folders:
        if folder == absolute(output):
            raise UserMistake(f"--output {output} is named by --seen too; a dump that arrives gets a folder of its own")
        result, digest = result_of(folder)
        compare(folder, result, agreed)
        found = list(files_of(folder))
        if sum(rows for _, rows in found) != result["kept"]:
            raise UserMistake(f"--seen {folder}: its files hold other reviews than corpus.json says; make it again")
        files += found
        digests.append(digest)
    punkt = punkt or one_punkt(folders)
    return Seen(tuple(folders), sum(rows for _, rows in files), tuple(in_runs(files)), punkt, tuple(digests))


def absolute(folder: str) -> str:
    return folder.rstrip("/") if storage.is_remote(folder) else os.path.realpath(folder)


def result_of(folder: str) -> tuple[dict[str, Any], str]:
    path = storage.join(folder, "corpus.json")
    if not storage.exists(path):
        raise UserMistake(f"--seen {folder}: no corpus.json in it; give folders that corpus_job has finished")
    content = storage.read_bytes(path)
    try:
        result = json.loads(content)
        assert isinstance(result["kept"], int)
    except (ValueError, KeyError, TypeError, AssertionError):
        raise UserMistake(
            f"--seen {folder}: its corpus.json is not one of corpus_job's; make the corpus again"
        ) from None
    return result, hashlib.sha256(content).hexdigest()


def compare(folder: str, result: dict[str, Any], agreed: dict[str, Any]) -> None:
    theirs = result.get("agreed")
    if theirs is None:
        raise UserMistake(f"--seen {folder}: its corpus.json does not say how it was made; make the corpus again")
    for name in agreed:
        if theirs.get(name) != agreed[name]:
            raise UserMistake(
                f"--seen {folder} was made with {name} {shown(theirs.get(name))}, this call has {shown(agreed[name])}: "
                "corpora that follow one another need the same settings"
            )


def shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def files_of(folder: str) -> Iterator[tuple[str, int]]:
    """Parquet files and the reviews in each."""
    for name in storage.names_in(folder):
        if name.startswith("corpus-") and name.endswith(".parquet"):
            path = storage.join(folder, name)
            try:
                with storage.open_bytes(path) as file:
                    yield path, pq.read_metadata(file).num_rows
            except (pa.ArrowInvalid, OSError) as error:
                raise UserMistake(f"--seen {folder}: {name} cannot be read ({error}); make the corpus again") from None


def one_punkt(folders: list[str]) -> str:
    paths = [storage.join(folder, "punkt.json") for folder in folders]
    contents = {storage.read_bytes(path) if storage.exists(path) else b"" for path in paths}
    if contents == {b""}:
        raise UserMistake(f"--seen {folders[0]}: no punkt.json in it; make the corpus again, or give --punkt")
    if len(contents) > 1:
        raise UserMistake(
            "--seen: these corpora were cut into sentences with different punkt.json; choose with --punkt"
        )
    return paths[0]


def in_runs(files: list[tuple[str, int]]) -> Iterator[tuple[str, ...]]:
    run: list[str] = []
    rows = 0
    for path, more in files:
        run.append(path)
        rows += more
        if rows >= PACK_ROWS:
            yield tuple(run)
            run, rows = [], 0
    if run:
        yield tuple(run)


def pack(run: tuple[int, tuple[str, ...]], folder: str) -> Pack:
    """Sorts the hashes of some files into one, unless an earlier run has done it."""
    number, paths = run
    path = storage.join(folder, f"{number:05d}.hashes")
    marker = f"{path}.json"
    if not storage.exists(marker):
        packed = deduplication.pack_seen(b"".join(hashes_in(file) for file in paths))
        storage.write_bytes(path, packed.tobytes())
        content = {"path": path, "offsets": deduplication.offsets(packed)}
        storage.write_bytes(marker, json.dumps(content).encode())
    return json.loads(storage.read_bytes(marker))


def hashes_in(path: str) -> bytes:
    with storage.open_bytes(path) as file:
        column = pq.ParquetFile(file).read(["text_hash"])["text_hash"]
    return b"".join(
        np.frombuffer(chunk.buffers()[1], "V16", len(chunk), chunk.offset * 16).tobytes() for chunk in column.chunks
    )


def texts_in(bucket: tuple[int, int], packs: Sequence[Pack]) -> np.ndarray:
    """The hashes of one bucket, sorted."""
    size, parts = deduplication.SEEN.itemsize, []
    for one in packs:
        first, last = deduplication.stretch(one["offsets"], *bucket)
        with storage.open_bytes(one["path"]) as file:
            file.seek(first * size)
            parts.append(file.read((last - first) * size))
    return deduplication.pack_seen(b"".join(parts))
