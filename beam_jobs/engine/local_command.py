"""Imports Beam for a job's local command without the clients of services that it does not use.

`import apache_beam` loads the clients of Google Cloud, MongoDB and pandas where they are installed:
more than half of its time. Beam does without each that is missing. They are kept out only if this
process was started as `python -m beam_jobs.…_job` and names no remote runner; pyarrow, which looks
for pandas with the first array that it makes, does not find it either. Imported by anything else,
and on the workers of Dataflow and Flink, Beam is whole. Storage at gs:// and s3:// is read
by fsspec, not by Beam.

The search for cycles of garbage costs such a command a seventh of its time and finds next to
nothing, so it waits until all is imported and is seldom from then on.

A job imports this module before anything that imports Beam.
"""

import gc
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from beam_jobs.engine.light_imports import hide_modules
from beam_jobs.job.command import keep_freed_memory

LOCAL_RUNNERS = {None, "", "DirectRunner", "FnApiRunner", "direct"}
"""Values of --runner that mean FnApiRunner."""
NOT_NEEDED = (
    *("google.api_core", "google.auth", "google.cloud", "google.genai", "google.pubsub_v1"),
    *("apitools", "bson", "gridfs", "hdfs", "oauth2client", "pandas", "pymongo", "requests"),
)
GARBAGE_THRESHOLDS = 50_000, 20, 100
"""Of gc.set_threshold: new objects until the youngest are searched, then searches until the next
generation is. Python's are 700 (2,000 from 3.14 on), 10 and 10: rows become objects by the
thousand, and none of them is part of a cycle.
"""


def is_local_command(argv: Sequence[str]) -> bool:
    """Return whether `argv`, a process's sys.argv, starts a job on this machine."""
    if Path(argv[0]).resolve().parent != Path(__file__).resolve().parents[1]:
        return False
    runners = [
        word.partition("=")[2] if "=" in word else next(iter(argv[i + 1 : i + 2]), "")
        for i, word in enumerate(argv)
        if word.partition("=")[0] == "--runner"
    ]
    return set(runners) <= LOCAL_RUNNERS


def import_beam(argv: Sequence[str]) -> None:
    """Import Beam, without what a local command does not need if `argv` is one."""
    if not is_local_command(argv):
        import apache_beam

        return
    gc.disable()
    logging.disable(logging.WARNING)  # Beam warns of each client that is missing
    try:
        with hide_modules(*NOT_NEEDED):
            import apache_beam  # noqa: F401
            import pyarrow

            pyarrow.array([0])  # it looks for pandas once, in every worker else
    finally:
        logging.disable(logging.NOTSET)


def tune_memory() -> None:
    """Let a local command that has its imports done keep the memory that it frees, and search for
    garbage again, but seldom, and never among what was imported: a forked worker then shares that
    memory.
    """
    if is_local_command(sys.argv):
        keep_freed_memory()
        gc.freeze()
        gc.set_threshold(*GARBAGE_THRESHOLDS)
        gc.enable()


import_beam(sys.argv)
