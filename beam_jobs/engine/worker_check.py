"""Has a worker on another host say whether it is made of what the job was made with.

A job server hands the graph to Python workers that somebody else installed. Other versions of Beam
or of this code there fail late, in words about pickles, or give other bytes in silence; a store
that they do not see gives a corpus that nobody finds. So the graph has one more step, which
compares. It needs no engine's help, and costs one element.
"""

import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import apache_beam as beam

from beam_jobs.core import storage
from beam_jobs.core.errors import UserError
from beam_jobs.core.files import hash_bytes

PROBE = ".seen-by-workers.tmp"
"""File in the output folder that the workers must find; its name is cleared like any temporary."""


@dataclass(frozen=True)
class Versions:
    """What must be the same here and on a worker."""

    python: str
    apache_beam: str
    beam_jobs: str
    """First digits of a hash of the code."""


@cache
def read_versions() -> Versions:
    """Return the versions of this process."""
    package = Path(__file__).parents[1]
    code = [hash_bytes(path.read_bytes()) for path in sorted(package.rglob("*.py"))]
    python = ".".join(platform.python_version_tuple()[:2])
    return Versions(python, beam.__version__, hash_bytes("".join(code).encode())[:12])


@contextmanager
def leave_probe(folder: str) -> Iterator[str]:
    """Yield the path of a file in the output folder that is there while the job lasts."""
    path = storage.join_path(folder, PROBE)
    storage.write_bytes(path, read_versions().beam_jobs.encode())
    try:
        yield path
    except BaseException:
        with suppress(Exception):  # what failed is told, not that the store is away as well
            storage.remove_path(path)
        raise
    storage.remove_path(path)


def add_worker_check(pipeline: beam.Pipeline, probe: str) -> None:
    """Add the step to a graph."""
    _ = (
        pipeline
        | "Tell versions" >> beam.Create([read_versions()], reshuffle=False)
        | "Compare versions" >> beam.Map(check_worker, probe)
    )


def check_worker(expected: Versions, probe: str) -> None:
    """Raise UserError on a worker that differs from the job, or does not see its output folder."""
    found = read_versions()
    differing = [
        f"{field.name} {getattr(found, field.name)} instead of {getattr(expected, field.name)}"
        for field in fields(Versions)
        if getattr(found, field.name) != getattr(expected, field.name)
    ]
    if differing:
        raise UserError(
            f"the engine's Python workers have {', '.join(differing)}; install there what is "
            "installed here"
        )
    folder = probe.rpartition("/")[0]
    with storage.report_unreachable(folder, "from the engine's Python workers"):
        is_there = storage.exists(probe)
    if not is_there:
        raise UserError(
            f"the engine's Python workers do not see {folder}; give a folder "
            "that is mounted there too, or an address in s3:// or gs://"
        )
