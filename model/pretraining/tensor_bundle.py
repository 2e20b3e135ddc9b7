"""Reads TensorFlow's checkpoint format ("tensor bundle") without TensorFlow.

Two kinds of files: `PREFIX.index`, a sorted string table as LevelDB writes it, name → place of each tensor, and
`PREFIX.data-00000-of-0000N`, the tensors' bytes. Written from the format's description in tensorflow's
core/util/tensor_bundle, core/lib/io/table_format and core/protobuf/tensor_bundle.proto.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.command import UserMistake

FOOTER_BYTES, MAGIC = 48, 0xDB4775248B80FB57
TYPES = {1: np.float32, 2: np.float64, 3: np.int32, 9: np.int64, 19: np.float16}  # tensorflow's DataType


@dataclass(frozen=True)
class Entry:
    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int  # bytes


def read_bundle(prefix: Path) -> dict[str, NDArray[np.generic]]:
    """All numeric tensors of a checkpoint by name."""
    index = prefix.with_name(prefix.name + ".index")
    records = dict(_table(index.read_bytes(), index))
    shards = _number(dict(_fields(records[b""])).get(1, 1))
    files = [prefix.with_name(f"{prefix.name}.data-{i:05}-of-{shards:05}") for i in range(shards)]
    maps = [np.memmap(path, dtype=np.uint8, mode="r") for path in files]
    tensors = {}
    for name, record in records.items():
        entry = _entry(record) if name else None
        if entry and entry.dtype in TYPES:
            held = maps[entry.shard][entry.offset : entry.offset + entry.size]
            if len(held) != entry.size:
                raise UserMistake(f"{files[entry.shard]}: ends inside tensor {name.decode()}; copy it again")
            tensors[name.decode()] = np.frombuffer(held.tobytes(), TYPES[entry.dtype]).reshape(entry.shape)
    return tensors


def _table(data: bytes, path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a sorted string table."""
    footer = data[-FOOTER_BYTES:]
    if len(footer) < FOOTER_BYTES or int.from_bytes(footer[-8:], "little") != MAGIC:
        raise UserMistake(f"{path}: not the index of a TensorFlow checkpoint")
    _, _, at = _handle(footer, 0)
    offset, size, _ = _handle(footer, at)
    for _, handle in _block(data, offset, size, path):
        start, length, _ = _handle(handle, 0)
        yield from _block(data, start, length, path)


def _block(data: bytes, offset: int, size: int, path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Keys share prefixes with the key before; the restart points at the end are not needed to read all. After the
    block come one byte for its compression and its checksum."""
    if data[offset + size] != 0:
        raise UserMistake(f"{path}: a compressed index, which this reader does not know")
    block = data[offset : offset + size]
    restarts = int.from_bytes(block[-4:], "little")
    end, at, key = len(block) - 4 * (restarts + 1), 0, b""
    while at < end:
        shared, at = _varint(block, at)
        unshared, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at : at + unshared]
        at += unshared
        yield key, block[at : at + length]
        at += length


def _handle(data: bytes, at: int) -> tuple[int, int, int]:
    """Offset and size of a block, and where the next handle starts."""
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return offset, size, at


def _entry(record: bytes) -> Entry:
    """BundleEntryProto: 1 dtype, 2 shape, 3 shard, 4 offset, 5 size."""
    values = dict(_fields(record))
    shape = values.get(2, b"")
    dimensions = [
        dict(_fields(dim)).get(1, 0) for tag, dim in _fields(_bytes(shape)) if tag == 2 and isinstance(dim, bytes)
    ]
    dtype, shard, offset, size = (_number(values.get(tag, 0)) for tag in (1, 3, 4, 5))
    return Entry(dtype, tuple(_number(d) for d in dimensions), shard, offset, size)


def _fields(message: int | bytes) -> Iterator[tuple[int, int | bytes]]:
    """Tag and value of each field of a protocol buffer message."""
    data, at = _bytes(message), 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        else:
            size = {1: 8, 5: 4}[kind]
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of 7 bits a byte, least significant first."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return value, at


def _number(value: int | bytes) -> int:
    assert isinstance(value, int)
    return value


def _bytes(value: int | bytes) -> bytes:
    assert isinstance(value, bytes)
    return value
