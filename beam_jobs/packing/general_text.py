"""Reads text that is not reviews, for the control arm: plain files, packed or not, into shards.

A document is a block of lines: blocks end at an empty line. A file that has no empty line near its
start holds one document a line. Documents are cleaned and cut into sentences as reviews are, and go
into shards the same way. A plain file is cut into units at document boundaries; a packed one is one
unit, and the members of a zip follow one another.
"""

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, ClassVar

import pyarrow as pa

from beam_jobs.core import storage
from beam_jobs.core.errors import UserError
from beam_jobs.core.files import hash_bytes
from beam_jobs.core.limits import DEFAULT_LIMITS, Limits
from beam_jobs.deduplication import evaluation_index
from beam_jobs.packing import corpus_units
from beam_jobs.reading.compression import (
    Compression,
    PlainStream,
    detect_compression,
    list_zip_members,
    open_uncompressed,
    refuse_unless_text,
)
from beam_jobs.text.cleaning import clean_text

HEAD_LINES = 1000
"""Looked at to tell blocks from lines."""
HEAD_BYTES = 1 << 16
BLOCK_BYTES = 1 << 20
UNIT_BYTES = 32_000_000
"""Of a plain file."""
SAMPLE_CHARACTERS = 1_000_000
"""Of all files together, to train Punkt on."""
WINDOW_DOCUMENTS = 16_384
WINDOW_CHARACTERS = 8_000_000
"""Tokenized and packed at a time, whichever is reached first."""
EMPTY_LINE = re.compile(rb"\n[ \t\r]*\n")


@dataclass(frozen=True)
class TextUnit:
    """Bytes `start` to `stop` (None: the end) of a file; to shards_job the like of a CorpusUnit."""

    rows_are: ClassVar[str] = "bytes"
    number: int
    path: str
    compression: Compression
    in_blocks: bool
    start: int
    stop: int | None
    rows: int  # bytes
    digest: str
    punkt: str  # where the parameters are
    withheld: str = ""  # where the hashes of the texts are that must not get in

    def read_windows(self, split: str) -> Iterator[pa.ListArray]:
        """Yield the sentences of the unit's documents, a window at a time, for any `split`."""
        from beam_jobs.text import sentences  # NLTK: 3 s that shards of a corpus need not spend

        splitter = sentences.SentenceSplitter(
            sentences.decode_punkt(storage.read_bytes(self.punkt).decode())
        )
        texts = (clean_text(text) for text in read_documents(self))
        for window in group_into_windows(text for text in texts if text):
            left_out = self._find_withheld(window)
            kept = ["" if out else text for text, out in zip(window, left_out, strict=True)]
            yield splitter.split(pa.array(kept, pa.string()))

    def _find_withheld(self, texts: list[str]) -> Sequence[bool]:
        """Return whether each is, or overlaps with, an evaluation text: an empty document then."""
        if not self.withheld:
            return [False] * len(texts)
        exact, near = evaluation_index.load_index(self.withheld).find_withheld(texts)
        return (exact | near).tolist()


def plan_text_units(
    patterns: Sequence[str],
    output: str,
    punkt: str | None,
    withhold: Sequence[str] = (),
    corpus: str = "",
    limits: Limits = DEFAULT_LIMITS,
) -> list[TextUnit]:
    """Return the units of all files, with Punkt parameters given or trained on their beginnings.

    `withhold`: evaluation files, whose texts stay out, as do the dev and test reviews of `corpus`;
    `limits` are those of these files.
    """
    withheld = write_withheld_index(withhold, corpus, output, limits)
    paths = find_text_files(patterns)
    parameters = storage.join_path(output, "punkt.json")
    shares = [part for path in paths for part in split_file(path)]
    units = [
        TextUnit(number, path, compression, in_blocks, start, stop, size, "", parameters, withheld)
        for number, (path, compression, in_blocks, start, stop, size) in enumerate(shares)
    ]
    if punkt:
        storage.remove_path(f"{parameters}.trained_on")
        from beam_jobs.text import sentences  # as above

        storage.write_bytes(
            parameters, sentences.encode_punkt(sentences.read_punkt(punkt)).encode()
        )
    else:
        train_punkt_once(units, parameters)
    content = storage.read_bytes(parameters)
    return [replace(unit, digest=hash_unit(unit, content)) for unit in units]


def write_withheld_index(withhold: Sequence[str], corpus: str, output: str, limits: Limits) -> str:
    """Write the index of the evaluation texts and return its path; "" if there are none."""
    if not withhold and not corpus:
        return ""
    path = storage.join_path(output, "withheld")
    storage.remove_path(path)
    files = storage.expand_patterns(withhold, "--withhold")
    reviews = corpus_units.read_held_out_texts(corpus) if corpus else ()
    evaluation_index.write_index(files, path, reviews, limits)
    return path


def find_text_files(patterns: Sequence[str]) -> list[str]:
    """Return every file that the patterns name, each once, sorted by name."""
    paths = {pattern: storage.expand_pattern(pattern, "--general-text") for pattern in patterns}
    for pattern, found in paths.items():
        if not found:
            raise UserError(f"--general-text {pattern}: no such file")
    return sorted(
        {path for found in paths.values() for path in found},
        key=lambda path: (os.path.basename(path), path),
    )


def split_file(path: str) -> Iterator[tuple[str, Compression, bool, int, int | None, int]]:
    """Yield (path, compression, in blocks, start, stop, bytes) of each unit of a file."""
    size = storage.get_size(path)
    with storage.open_bytes(path) as file:
        compression = detect_compression(file.read(8))
    head = b"".join(itertools.islice(read_raw_lines(path, compression, 0, None), HEAD_LINES))
    refuse_unless_text(head[:HEAD_BYTES], f"--general-text: {path}")
    in_blocks = EMPTY_LINE.search(head.strip()) is not None
    if compression:
        yield path, compression, in_blocks, 0, None, size
        return
    with storage.open_bytes(path) as file:
        cuts = [0]
        while (cut := find_document_start(file, cuts[-1] + UNIT_BYTES, in_blocks)) < size:
            cuts.append(cut)
    for start, stop in itertools.pairwise([*cuts, size]):
        yield path, compression, in_blocks, start, stop, stop - start


def find_document_start(file: BinaryIO, offset: int, in_blocks: bool) -> int:
    """Return where the first document after `offset` begins, or the end of the file."""
    file.seek(offset)
    seen = b""
    while block := file.read(HEAD_BYTES):
        seen += block
        end = EMPTY_LINE.search(seen) if in_blocks else re.search(b"\n", seen)
        if end:
            return offset + end.end()
    return offset + len(seen)


def hash_unit(unit: TextUnit, punkt: bytes) -> str:
    """Return the SHA-256 of what decides a shard: name, size and beginning of the file, the stretch
    of it, Punkt's parameters, the evaluation texts.
    """
    with storage.open_bytes(unit.path) as file:
        identity = [storage.get_size(unit.path), hash_bytes(file.read(HEAD_BYTES))]
    index = storage.join_path(unit.withheld, "index.json") if unit.withheld else ""
    withheld = storage.hash_file(index) if index else hash_bytes(b"")
    rules = [hash_bytes(punkt), withheld]
    text = repr([unit.path, identity, unit.start, unit.stop, unit.in_blocks, *rules])
    return hash_bytes(text.encode())


def train_punkt_once(units: list[TextUnit], parameters: str) -> None:
    """Train Punkt and write its parameters, unless an earlier run has, on the same text."""
    trained_on = f"{parameters}.trained_on"
    identity = hash_bytes("".join(hash_unit(unit, b"") for unit in units).encode())
    known = storage.exists(parameters) and storage.exists(trained_on)
    if known and storage.read_bytes(trained_on).decode() == identity:
        return
    storage.remove_path(trained_on)
    storage.write_bytes(parameters, train_punkt(units).encode())
    storage.write_bytes(trained_on, identity.encode())


def train_punkt(units: list[TextUnit]) -> str:
    """Return Punkt parameters from the first documents of every unit."""
    from beam_jobs.text import sentences  # as above

    share = SAMPLE_CHARACTERS // max(len(units), 1) + 1
    texts = []
    for unit in units:
        taken = 0
        for text in read_documents(unit):
            texts.append(clean_text(text))
            taken += len(text)
            if taken >= share:
                break
    if not any(texts):
        raise UserError(
            "--general-text: no text in these files; give plain text, gz, bz2, zst or zip"
        )
    return sentences.encode_punkt(sentences.train_punkt(texts))


def read_documents(unit: TextUnit) -> Iterator[str]:
    """Yield the documents of a unit as they stand in the file."""
    lines = read_raw_lines(unit.path, unit.compression, unit.start, unit.stop)
    if not unit.in_blocks:
        yield from (decode_line(line) for line in lines)
        return
    for is_text, block in itertools.groupby(lines, lambda line: not line.isspace()):
        if is_text:
            yield decode_line(b"".join(block))


def read_raw_lines(
    path: str, compression: Compression, start: int, stop: int | None
) -> Iterator[bytes]:
    """Yield lines with their ends; between the members of a zip there is an empty one."""
    for member in list_zip_members(path) if compression == "zip" else [""]:
        with open_uncompressed(path, compression, member) as stream:
            if start:
                stream.seek(start)
            yield from split_lines(stream, None if stop is None else stop - start)
            if stream.damage:
                raise UserError(f"--general-text: {path}: {stream.damage}; fetch it again")
        if member:
            yield b"\n"


def split_lines(stream: PlainStream, left: int | None) -> Iterator[bytes]:
    """Yield lines of the next `left` bytes, or of all there are."""
    rest = b""
    while left != 0 and (
        block := stream.read(BLOCK_BYTES if left is None else min(BLOCK_BYTES, left))
    ):
        left = None if left is None else left - len(block)
        *lines, rest = (rest + block).split(b"\n")
        yield from (line + b"\n" for line in lines)
    if rest:
        yield rest + b"\n"


def decode_line(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace")


def group_into_windows(texts: Iterable[str]) -> Iterator[list[str]]:
    window: list[str] = []
    characters = 0
    for text in texts:
        window.append(text)
        characters += len(text)
        if len(window) >= WINDOW_DOCUMENTS or characters >= WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window
