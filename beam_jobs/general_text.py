"""Text that is not reviews, for the control arm: plain files, packed or not, as a source of shards.

A document is a block of lines: blocks end at an empty line. A file that has no empty line near its start holds one
document a line. Documents are cleaned and cut into sentences as reviews are, and go into shards the same way. A plain
file is cut into units at document boundaries; a packed one is one unit, and the members of a zip follow one another.
"""

import hashlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, ClassVar

import pyarrow as pa

from beam_jobs import evaluation_texts, shard_units, storage, withholding
from beam_jobs.cleaning import clean
from beam_jobs.command import UserMistake
from beam_jobs.compression import (
    Compression,
    PlainStream,
    compression_of,
    open_plain,
    refuse_unless_text,
    zip_members,
)

HEAD_LINES = 1000  # looked at to tell blocks from lines
HEAD_BYTES, BLOCK_BYTES = 1 << 16, 1 << 20
UNIT_BYTES = 32_000_000  # of a plain file
SAMPLE_CHARACTERS = 1_000_000  # for Punkt, in all
WINDOW_DOCUMENTS, WINDOW_CHARACTERS = 16_384, 8_000_000  # tokenized and packed at a time
EMPTY_LINE = re.compile(rb"\n[ \t\r]*\n")


@dataclass(frozen=True)
class TextUnit:
    """Bytes `start` to `stop` (None: all there are) of a file. To shards_job the like of a CorpusUnit."""

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

    def windows(self, split: str) -> Iterator[pa.ListArray]:
        """The sentences of the unit's documents, a window at a time. `split`: all of general text is for training."""
        from beam_jobs import sentences  # NLTK takes a fifth of a second, which shards of a corpus do not need

        splitter = sentences.SentenceSplitter(sentences.from_json(storage.read_bytes(self.punkt).decode()))
        texts = (clean(text) for text in documents(self))
        for window in in_windows(text for text in texts if text):
            left_out = self._withheld(window)
            kept = [[] if out else splitter.split(text) for text, out in zip(window, left_out, strict=True)]
            yield pa.array(kept, pa.list_(pa.string()))

    def _withheld(self, texts: list[str]) -> Sequence[bool]:
        """Whether each is, or overlaps with, an evaluation text; it is counted as an empty document."""
        if not self.withheld:
            return [False] * len(texts)
        known = withholding.load(self.withheld)
        near = known.near(texts)
        return [withholding.hash_of(text) in known.exact or bool(n) for text, n in zip(texts, near, strict=True)]


def plan(
    patterns: list[str], output: str, punkt: str | None, withhold: Sequence[str] = (), corpus: str = ""
) -> list[TextUnit]:
    """The units of all files, and the Punkt parameters they need: given, or trained on the beginning of each file.

    `withhold`: evaluation files, whose texts stay out, as do the dev and test reviews of `corpus`.
    """
    withheld = keep_out(withhold, corpus, output)
    paths = find(patterns)
    parameters = storage.join(output, "punkt.json")
    shares = [part for path in paths for part in look_at(path)]
    units = [
        TextUnit(number, path, compression, in_blocks, start, stop, size, "", parameters, withheld)
        for number, (path, compression, in_blocks, start, stop, size) in enumerate(shares)
    ]
    if punkt:
        storage.remove(f"{parameters}.trained_on")
        from beam_jobs import sentences  # as above

        storage.write_bytes(parameters, sentences.to_json(sentences.given(punkt)).encode())
    else:
        train_once(units, parameters)
    content = storage.read_bytes(parameters)
    return [TextUnit(**{**unit.__dict__, "digest": digest_of(unit, content)}) for unit in units]


def keep_out(withhold: Sequence[str], corpus: str, output: str) -> str:
    """Where the hashes of the evaluation texts are; nowhere without any."""
    if not withhold and not corpus:
        return ""
    path = storage.join(output, "withheld.npz")
    files = storage.expand(list(withhold), "--withhold")
    texts = itertools.chain.from_iterable(map(evaluation_texts.texts_of, files))
    reviews = shard_units.evaluated(corpus) if corpus else ()
    withholding.build(itertools.chain(texts, reviews)).save(path)
    return path


def find(patterns: list[str]) -> list[str]:
    """Every file that the patterns name, each once, sorted by name."""
    paths = {pattern: storage.expand_one(pattern, "--general_text") for pattern in patterns}
    for pattern, found in paths.items():
        if not found:
            raise UserMistake(f"--general_text {pattern}: no such file")
    return sorted({path for found in paths.values() for path in found}, key=lambda path: (os.path.basename(path), path))


def look_at(path: str) -> Iterator[tuple[str, Compression, bool, int, int | None, int]]:
    """(path, compression, in blocks, start, stop, bytes) of each unit of a file."""
    size = storage.size_of(path)
    with storage.open_bytes(path) as file:
        compression = compression_of(file.read(8))
    head = b"".join(itertools.islice(lines_of(path, compression, 0, None), HEAD_LINES))
    refuse_unless_text(head[:HEAD_BYTES], f"--general_text: {path}")
    in_blocks = EMPTY_LINE.search(head.strip()) is not None
    if compression:
        yield path, compression, in_blocks, 0, None, size
        return
    with storage.open_bytes(path) as file:
        cuts = [0]
        while (cut := next_boundary(file, cuts[-1] + UNIT_BYTES, in_blocks)) < size:
            cuts.append(cut)
    for start, stop in itertools.pairwise([*cuts, size]):
        yield path, compression, in_blocks, start, stop, stop - start


def next_boundary(file: BinaryIO, offset: int, in_blocks: bool) -> int:
    """Where the first document after `offset` begins, or the end of the file."""
    file.seek(offset)
    seen = b""
    while block := file.read(HEAD_BYTES):
        seen += block
        end = EMPTY_LINE.search(seen) if in_blocks else re.search(b"\n", seen)
        if end:
            return offset + end.end()
    return offset + len(seen)


def digest_of(unit: TextUnit, punkt: bytes) -> str:
    """Of what decides the shard: the file (by its name, size and beginning), the stretch of it, Punkt."""
    with storage.open_bytes(unit.path) as file:
        identity = [storage.size_of(unit.path), hashlib.sha256(file.read(HEAD_BYTES)).hexdigest()]
    content = hashlib.sha256(storage.read_bytes(unit.withheld) if unit.withheld else b"").hexdigest()
    rules = [hashlib.sha256(punkt).hexdigest(), content]
    text = repr([unit.path, identity, unit.start, unit.stop, unit.in_blocks, *rules])
    return hashlib.sha256(text.encode()).hexdigest()


def train_once(units: list[TextUnit], parameters: str) -> None:
    """Trains unless an earlier run has, on the same text."""
    trained_on = f"{parameters}.trained_on"
    identity = hashlib.sha256("".join(digest_of(unit, b"") for unit in units).encode()).hexdigest()
    known = storage.exists(parameters) and storage.exists(trained_on)
    if known and storage.read_bytes(trained_on).decode() == identity:
        return
    storage.remove(trained_on)
    storage.write_bytes(parameters, train(units).encode())
    storage.write_bytes(trained_on, identity.encode())


def train(units: list[TextUnit]) -> str:
    """Punkt parameters from the first documents of every unit."""
    from beam_jobs import sentences  # as above

    share = SAMPLE_CHARACTERS // max(len(units), 1) + 1
    texts = []
    for unit in units:
        taken = 0
        for text in documents(unit):
            texts.append(clean(text))
            taken += len(text)
            if taken >= share:
                break
    if not any(texts):
        raise UserMistake("--general_text: no text in these files; give plain text, gz, bz2, zst or zip")
    return sentences.to_json(sentences.train(texts))


def documents(unit: TextUnit) -> Iterator[str]:
    """The documents of a unit as they stand in the file."""
    lines = lines_of(unit.path, unit.compression, unit.start, unit.stop)
    if not unit.in_blocks:
        yield from (decode(line) for line in lines)
        return
    for is_text, block in itertools.groupby(lines, lambda line: not line.isspace()):
        if is_text:
            yield decode(b"".join(block))


def lines_of(path: str, compression: Compression, start: int, stop: int | None) -> Iterator[bytes]:
    """Lines with their ends; between the members of a zip there is an empty one."""
    for member in zip_members(path) if compression == "zip" else [""]:
        with open_plain(path, compression, member) as stream:
            if start:
                stream.seek(start)
            yield from lines_in(stream, None if stop is None else stop - start)
            if stream.damage:
                raise UserMistake(f"--general_text: {path}: {stream.damage}; fetch it again")
        if member:
            yield b"\n"


def lines_in(stream: PlainStream, left: int | None) -> Iterator[bytes]:
    """Lines of the next `left` bytes, or of all there are."""
    rest = b""
    while left != 0 and (block := stream.read(BLOCK_BYTES if left is None else min(BLOCK_BYTES, left))):
        left = None if left is None else left - len(block)
        *lines, rest = (rest + block).split(b"\n")
        yield from (line + b"\n" for line in lines)
    if rest:
        yield rest + b"\n"


def decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace")


def in_windows(texts: Iterable[str]) -> Iterator[list[str]]:
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
