"""Finds the dumps in the watched places."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import PurePosixPath

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.storage import Identity
from amazon_electra.beam_jobs.reading.compression import PACKED
from amazon_electra.beam_jobs.reading.formats import list_endings


def find_dumps(places: Sequence[str]) -> tuple[list[Identity], list[str]]:
    """Return what lies in the places and is named like a dump, sorted by path, and sentences about
    the rest. UserError or TransientError where a place cannot be reached.
    """
    dumps, notes = dict[str, Identity](), list[str]()
    for place in places:
        for path, known in storage.expand_pattern(place, "watch.places").items():
            readable = os.fsencode(path).decode(errors="backslashreplace")
            if readable != path:
                notes.append(f"left alone: {readable}: its name is not UTF-8, rename it")
            elif not is_named_like_a_dump(path):
                endings = ", ".join((*list_endings(), *PACKED))
                notes.append(f"left alone: {path}: its name ends in none of {endings}")
            else:
                with suppress(FileNotFoundError):  # it was just moved away
                    identity = known or storage.describe_identity(path)
                    if identity[1]:
                        dumps[path] = identity
    return [dumps[path] for path in sorted(dumps)], notes


def is_named_like_a_dump(path: str) -> bool:
    """Return True for reviews.json, reviews.json.gz and reviews.gz, but not for notes.md.gz."""
    endings = [ending[1:].lower() for ending in PurePosixPath(path).suffixes]
    packed = bool(endings) and endings[-1] in PACKED
    inner = endings[:-1] if packed else endings
    return inner[-1] in list_endings() if inner else packed
