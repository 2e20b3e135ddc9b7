"""Corpora that came before (`--seen`): a dump that arrives adds what is new in it, as if all had
come at once.

Three dumps arriving in turn, each with `--seen` of the corpora before it, leave together the
reviews and sentences of one corpus of all three in that order (`--input A --input B --input C`)
with the same Punkt parameters. Near duplicates are compared with what an earlier corpus kept, not
with what it dropped, so that a few more may stay than of all at once (near.py). For that all must
agree on what happens to a text; what is compared is `plan.list_shared_settings`, which every
corpus.json holds.

Of an earlier corpus only the column of text hashes is read, once, and written bucket by bucket, 16
bytes a review, into the work folder, from where the search for duplicates takes its stretches. That
costs 0.23 µs of CPU for each earlier review (measured from 2,000 to 4,000,000 of them), about a
four-hundredth of what a new one costs.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import hash_bytes
from amazon_electra.beam_jobs.core.nesting import load_json
from amazon_electra.beam_jobs.deduplication.buckets import BucketedRows
from amazon_electra.beam_jobs.deduplication.exact import TEXT_HASH

PACK_ROWS = 1 << 20
"""Texts of a file of hashes, at least: 16 MiB."""


@dataclass(frozen=True)
class EarlierCorpora:
    """What is known of the earlier corpora before the job starts."""

    folders: tuple[str, ...] = ()
    reviews: int = 0
    runs: tuple[tuple[str, ...], ...] = ()  # their Parquet files, PACK_ROWS texts or more together
    punkt: str | None = None  # path of the parameters
    digests: tuple[str, ...] = ()
    labels: tuple[dict[str, dict[str, int]], ...] = ()
    """What each counted of the values of labels, by column."""


def inspect_corpora(
    folders: list[str], agreed: dict[str, Any], output: str, punkt: str | None
) -> EarlierCorpora:
    """Return what the job needs to know of the earlier corpora in `folders`.

    Raises UserError for what is not a whole corpus, or was made with other settings than `agreed`.
    """
    folders = list(dict.fromkeys(resolve_folder(folder) for folder in folders))
    if not folders:
        return EarlierCorpora()
    files: list[tuple[str, int]] = []
    digests, labels = [], []
    for folder in folders:
        if folder == resolve_folder(output):
            raise UserError(
                "`seen` names it too; a dump that arrives gets a folder of its own",
                "output",
                output,
            )
        result, digest = read_result(folder)
        for name, ours in agreed.items():
            if (theirs := result["agreed"].get(name)) != ours:
                theirs, ours = (
                    value if isinstance(value, str) else json.dumps(value)
                    for value in (theirs, ours)
                )
                raise UserError(
                    f"made with {name} {theirs}, this call has {ours}: corpora that follow one "
                    "another need the same settings",
                    "seen",
                    folder,
                )
        found = list_corpus_files(folder)
        if sum(rows for _, rows in found) != result["kept"]:
            raise UserError(
                "its files hold other reviews than corpus.json says; make it again", "seen", folder
            )
        files += found
        digests.append(digest)
        labels.append(result.get("label_values", {}))
    punkt = punkt or find_common_punkt(folders)
    return EarlierCorpora(
        tuple(folders),
        sum(rows for _, rows in files),
        tuple(group_files(files)),
        punkt,
        tuple(digests),
        tuple(labels),
    )


def resolve_folder(folder: str) -> str:
    return folder.rstrip("/") if storage.is_remote(folder) else os.path.realpath(folder)


def read_result(folder: str, field: str = "seen") -> tuple[dict[str, Any], str]:
    """Return what the corpus.json of a folder holds, and its SHA-256."""
    path = storage.join_path(folder, "corpus.json")
    if not storage.exists(path):
        raise UserError("no corpus.json in it; give what corpus_job has finished", field, folder)
    content = storage.read_bytes(path)
    try:
        result = load_json(content)
        assert isinstance(result["kept"], int)
        assert isinstance(result["agreed"], dict)
    except (ValueError, KeyError, TypeError, AssertionError):
        raise UserError(
            "its corpus.json is not one of corpus_job's; make the corpus again", field, folder
        ) from None
    return result, hash_bytes(content)


def list_corpus_files(folder: str, field: str = "seen") -> list[tuple[str, int]]:
    """Return a corpus's Parquet files and the number of reviews in each."""
    names = [n for n in storage.list_names(folder) if re.fullmatch(r"corpus-.*\.parquet", n)]
    paths = [storage.join_path(folder, name) for name in names]

    def count_reviews(path: str) -> int:
        try:
            with storage.open_bytes(path) as file:
                return int(pq.read_metadata(file).num_rows)
        except (pa.ArrowInvalid, OSError) as error:
            raise UserError(
                f"{os.path.basename(path)} cannot be read ({error}); make the corpus again",
                field,
                folder,
            ) from None

    return list(zip(paths, storage.map_paths(count_reviews, paths), strict=True))


def find_common_punkt(folders: list[str]) -> str:
    paths = [storage.join_path(folder, "punkt.json") for folder in folders]
    contents = {storage.read_bytes(path) if storage.exists(path) else b"" for path in paths}
    if contents == {b""}:
        raise UserError(
            "no punkt.json in it; make the corpus again, or give `punkt`", "seen", folders[0]
        )
    if len(contents) > 1:
        raise UserError(
            "these corpora were cut into sentences with different punkt.json; choose with `punkt`",
            "seen",
        )
    return paths[0]


def group_files(files: list[tuple[str, int]]) -> Iterator[tuple[str, ...]]:
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


def write_text_hashes(run: tuple[int, tuple[str, ...]], folder: str) -> str:
    """Write the hashes of a run of files bucket by bucket into one file, unless an earlier run has;
    return its path.
    """
    number, paths = run
    path = storage.join_path(folder, f"{number:05d}.hashes")
    if storage.exists(f"{path}.starts"):
        return path
    hashes = BucketedRows(TEXT_HASH)
    for name in paths:
        with storage.open_bytes(name) as file:
            column = pq.ParquetFile(file).read(["text_hash"])["text_hash"]
        for chunk in column.chunks:
            buffer = chunk.buffers()[1]
            hashes.add_rows(np.frombuffer(buffer, TEXT_HASH, len(chunk), chunk.offset * 16))
    return hashes.save_with_starts(path)
