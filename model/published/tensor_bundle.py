"""Reads TensorFlow's checkpoint format ("tensor bundle") without TensorFlow.

Two kinds of files: `PREFIX.index`, a sorted string table as LevelDB writes it, name → place of
each tensor, and `PREFIX.data-00000-of-0000N`, the tensors' bytes. Written from the format's
description in tensorflow's core/util/tensor_bundle, core/lib/io/table_format and
core/protobuf/tensor_bundle.proto.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from beam_jobs.job.errors import UserError

FOOTER_BYTES, MAGIC = 48, 0xDB4775248B80FB57
# tensorflow's DataType
TYPES = {1: np.float32, 2: np.float64, 3: np.int32, 9: np.int64, 19: np.float16}


@dataclass(frozen=True)
class Entry:
    """The place and shape of one tensor."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int  # bytes


def read_bundle(prefix: Path) -> dict[str, NDArray[np.generic]]:
    """Return all numeric tensors of a checkpoint by name."""
    index = prefix.with_name(prefix.name + ".index")
    records = dict(_read_table(index.read_bytes(), index))
    shards = _require_number(dict(_parse_fields(records[b""])).get(1, 1))
    files = [prefix.with_name(f"{prefix.name}.data-{i:05}-of-{shards:05}") for i in range(shards)]
    maps = [np.memmap(path, dtype=np.uint8, mode="r") for path in files]
    tensors = {}
    for name, record in records.items():
        entry = _parse_entry(record) if name else None
        if entry and entry.dtype in TYPES:
            held = maps[entry.shard][entry.offset : entry.offset + entry.size]
            if len(held) != entry.size:
                raise UserError(
                    f"{files[entry.shard]}: ends inside tensor {name.decode()}; copy it again"
                )
            tensors[name.decode()] = np.frombuffer(held.tobytes(), TYPES[entry.dtype]).reshape(
                entry.shape
            )
    return tensors


def _read_table(data: bytes, path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a sorted string table."""
    footer = data[-FOOTER_BYTES:]
    if len(footer) < FOOTER_BYTES or int.from_bytes(footer[-8:], "little") != MAGIC:
        raise UserError(f"{path}: not the index of a TensorFlow checkpoint")
    _, _, at = _read_handle(footer, 0)
    offset, size, _ = _read_handle(footer, at)
    for _, handle in _read_block(data, offset, size, path):
        start, length, _ = _read_handle(handle, 0)
        yield from _read_block(data, start, length, path)


def _read_block(data: bytes, offset: int, size: int, path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block; a key shares a prefix with the key before it.

    The restart points at the end are not needed to read all. After the block come one byte for its
    compression and its checksum.
    """
    if data[offset + size] != 0:
        raise UserError(f"{path}: a compressed index, which this reader does not know")
    block = data[offset : offset + size]
    restarts = int.from_bytes(block[-4:], "little")
    end, at, key = len(block) - 4 * (restarts + 1), 0, b""
    while at < end:
        shared, at = _read_varint(block, at)
        unshared, at = _read_varint(block, at)
        length, at = _read_varint(block, at)
        key = key[:shared] + block[at : at + unshared]
        at += unshared
        yield key, block[at : at + length]
        at += length


def _read_handle(data: bytes, at: int) -> tuple[int, int, int]:
    """Return offset and size of a block, and where the next handle starts."""
    offset, at = _read_varint(data, at)
    size, at = _read_varint(data, at)
    return offset, size, at


def _parse_entry(record: bytes) -> Entry:
    """Parse a BundleEntryProto: 1 dtype, 2 shape, 3 shard, 4 offset, 5 size."""
    values = dict(_parse_fields(record))
    shape = values.get(2, b"")
    dimensions = [
        dict(_parse_fields(dim)).get(1, 0)
        for tag, dim in _parse_fields(_require_bytes(shape))
        if tag == 2 and isinstance(dim, bytes)
    ]
    dtype, shard, offset, size = (_require_number(values.get(tag, 0)) for tag in (1, 3, 4, 5))
    return Entry(dtype, tuple(_require_number(d) for d in dimensions), shard, offset, size)


def _parse_fields(message: int | bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield tag and value of each field of a protocol buffer message."""
    data, at = _require_bytes(message), 0
    while at < len(data):
        key, at = _read_varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _read_varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _read_varint(data, at)
        else:
            size = {1: 8, 5: 4}[kind]
        yield key >> 3, data[at : at + size]
        at += size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of 7 bits a byte, least significant first, and where the next one starts."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return value, at


def _require_number(value: int | bytes) -> int:
    assert isinstance(value, int)
    return value


def _require_bytes(value: int | bytes) -> bytes:
    assert isinstance(value, bytes)
    return value
