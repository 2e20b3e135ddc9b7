"""Has a worker on another host say whether it is made of what the job was made with.

A job server hands the graph to Python workers that somebody else installed. Other versions of Beam
or of this code there fail late, in words about pickles, or give other bytes in silence; a store
that they do not see gives a corpus that nobody finds. So the graph has one more step, which
compares. It needs no engine's help, and costs one element.
"""

import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import apache_beam as beam

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import hash_bytes

PROBE = ".seen-by-workers.tmp"
"""File in the output folder that the workers must find; its name is cleared like any temporary."""


@cache
def read_versions() -> dict[str, str]:
    """Return what must be the same here and on a worker: the versions of Python and Beam, and the
    first digits of a hash of our code.
    """
    package = Path(__file__).parents[1]
    code = [hash_bytes(path.read_bytes()) for path in sorted(package.rglob("*.py"))]
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "apache_beam": beam.__version__,
        "beam_jobs": hash_bytes("".join(code).encode())[:12],
    }


@contextmanager
def leave_probe(folder: str) -> Iterator[str]:
    """Yield the path of a file in the output folder that is there while the job lasts."""
    path = storage.join_path(folder, PROBE)
    storage.write_bytes(path, b"")
    try:
        yield path
    except BaseException:
        with suppress(Exception):  # what failed is reported, not that the store is away as well
            storage.remove_path(path)
        raise
    storage.remove_path(path)


def add_worker_check(pipeline: beam.Pipeline, probe: str) -> None:
    """Add the step to a graph."""
    _ = (
        pipeline
        | "Report versions" >> beam.Create([read_versions()], reshuffle=False)
        | "Compare versions" >> beam.Map(check_worker, probe)
    )


def check_worker(expected: dict[str, str], probe: str) -> None:
    """Raise UserError on a worker that differs from the job, or does not see its output folder."""
    differing = [
        f"{name} {found} instead of {expected[name]}"
        for name, found in read_versions().items()
        if found != expected[name]
    ]
    if differing:
        raise UserError(
            f"the engine's Python workers have {', '.join(differing)}; install there what is "
            "installed here"
        )
    folder = probe.rpartition("/")[0]
    with storage.report_unreachable(f"from the engine's Python workers {folder}"):
        is_there = storage.exists(probe)
    if not is_there:
        raise UserError(
            f"the engine's Python workers do not see {folder}; give a folder "
            "that is mounted there too, or an address in s3:// or gs://"
        )
