"""Say which layers of its teacher a student begins with, without loading either."""

import re

PART = re.compile(r"half|layers:([1-9][0-9]*)")


def is_part_of_teacher(encoder: str) -> bool:
    """Return whether `--encoder` (or a study's `encoder`) is `half` or `layers:N` of a teacher."""
    return PART.fullmatch(encoder) is not None


def choose_layers(encoder: str, depth: int) -> list[int]:
    """Return the layers, from 0, of a teacher with so many: every second one, or N evenly spread.

    Both begin with the first, as DistilBERT does (arXiv 1910.01108). Raise ValueError where the
    teacher has fewer.
    """
    found = PART.fullmatch(encoder)
    if not found:
        raise ValueError(f"{encoder}: neither half nor layers:N")
    if not found[1]:
        return list(range(0, depth, 2))
    count = int(found[1])
    if count > depth:
        raise ValueError(f"{encoder}: the teacher has {depth} layers")
    return [i * depth // count for i in range(count)]
