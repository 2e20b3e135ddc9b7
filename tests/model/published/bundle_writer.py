"""Writes TensorFlow's checkpoint format, the least of it that TensorFlow's own files have: for
tests.
"""

from pathlib import Path

import numpy as np

TYPES = {"float32": 1, "int64": 9}
MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")


def varint(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(tag: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(tag << 3) + varint(value)
    return varint(tag << 3 | 2) + varint(len(value)) + value


def block(records: list[tuple[bytes, bytes]]) -> bytes:
    """Keys written against the one before, one restart point, no compression, no checksum."""
    data, before = b"", b""
    for key, value in records:
        shared = next(
            (i for i, (a, b) in enumerate(zip(key, before, strict=False)) if a != b),
            min(len(key), len(before)),
        )
        data += (
            varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        )
        before = key
    return data + bytes(4) + (1).to_bytes(4, "little") + bytes(5)


def write_bundle(prefix: Path, tensors: dict[str, np.ndarray]) -> None:
    data, records = b"", [(b"", field(1, 1))]
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        shape = b"".join(field(2, field(1, size)) for size in array.shape)
        entry = field(1, TYPES[str(array.dtype)]) + field(2, shape)
        records.append((name.encode(), entry + field(4, len(data)) + field(5, array.nbytes)))
        data += array.tobytes()
    first = block(records)
    second = block([(b"zzz", varint(0) + varint(len(first) - 5))])
    footer = (
        varint(len(first) + len(second)) + varint(0) + varint(len(first)) + varint(len(second) - 5)
    )
    index = first + second + footer.ljust(40, b"\0") + MAGIC
    prefix.with_name(prefix.name + ".index").write_bytes(index)
    prefix.with_name(prefix.name + ".data-00000-of-00001").write_bytes(data)
