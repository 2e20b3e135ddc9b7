"""What workers do with a unit of work in every job: they try it again, time it and count it."""

import json
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from apache_beam.metrics import Metrics

from amazon_electra.beam_jobs.core import errors, storage
from amazon_electra.beam_jobs.engine.failures import AGAIN

T = TypeVar("T")
ATTEMPTS = 4  # as many as Dataflow makes
PAUSE_SECONDS = 1.0  # after an attempt that a store or network made fail; then twice, four times
MAX_FAILED = 10  # units that may fail before the next one that does ends the job at once


def attempt(work: Callable[[], T], unit: str, file: str, folder: str) -> Iterator[T]:
    """Yield what the work on a unit of a file returns, after ATTEMPTS at most. If all fail,
    `folder/UNIT.json` says why and nothing is yielded: the other units go on, and after them
    `check_failed` ends the job. A UserError ends it at once.
    """
    path = storage.join_path(folder, f"{unit}.json")
    for number in range(ATTEMPTS):
        began = time.monotonic()
        try:
            done = work()
        except errors.UserError:
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in errors.DISK_FULL:
                raise errors.JobFailed(f"{file}: {error.strerror}: make room; {AGAIN}") from error
            failure, may_pass = error, errors.is_network_error(error)
            if may_pass and number + 1 < ATTEMPTS:
                time.sleep(PAUSE_SECONDS * 2**number)
        else:
            milliseconds = round(1000 * (time.monotonic() - began))
            Metrics.distribution("beam_jobs", "unit_milliseconds").update(milliseconds)
            storage.remove_path(path)  # of an engine that has begun again since it failed
            yield done
            return
    told = errors.describe_error(failure)
    if len(storage.list_names(folder)) >= MAX_FAILED:
        raise errors.TransientError(f"{file}: {told}; {AGAIN}") if may_pass else failure
    record = {"file": file, "error": f"{type(failure).__name__}: {told}", "may_pass": may_pass}
    traced = "".join(traceback.format_exception(failure))
    storage.write_json(path, record | {"traceback": traced})


def check_failed(folder: str) -> None:
    """Raise JobFailed that names the first unit that failed, TransientError where it may pass."""
    paths = [storage.join_path(folder, name) for name in storage.list_names(folder)]
    failures = [json.loads(storage.read_bytes(path)) for path in paths]
    if failures:
        may_pass = all(one["may_pass"] for one in failures)
        more = f", and {len(paths) - 1} more there" if len(paths) > 1 else ""
        raise (errors.TransientError if may_pass else errors.JobFailed)(
            f"{failures[0]['file']}: a part of it failed {ATTEMPTS} times: {failures[0]['error']} "
            f"({paths[0]}{more}); {AGAIN}"
        )


def add_to_counters(counts: Mapping[str, int], dropped: Mapping[str, int]) -> None:
    """Add to the counters that engines show, `dropped …` by the reason without its details."""
    reasons = ((f"dropped {reason.partition(':')[0]}", n) for reason, n in dropped.items())
    for name, n in (*counts.items(), *reasons):
        if n:
            Metrics.counter("beam_jobs", name).inc(n)
