"""CPU and seconds of reading a stretch of a file from an S3 server on this machine: what the corpus
job does once for each unit and bucket.

    python tests/bench/ranged_reads.py [--reads 1000] [--kilobytes 16 200] [--at_once 1 16]

CPU seconds are this process's, so without the server's. The seconds are those of a server at no
distance, on the cores that this process uses too.
"""

import argparse
import json
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from beam_jobs.job import storage
from tests.s3_server import BUCKET, serve_s3

FILES = 20
"""Files that are read in turn, of 16 MB each."""
FILE_BYTES = 16 << 20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reads", type=int, default=1000, help="(default: %(default)s)")
    parser.add_argument("--kilobytes", type=int, nargs="+", default=[1, 16, 200])
    parser.add_argument("--at_once", type=int, nargs="+", default=[1, 16], help="requests")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with serve_files() as paths:
        rows = [
            measure_reads(paths, args.reads, kilobytes << 10, at_once)
            for kilobytes in args.kilobytes
            for at_once in args.at_once
        ]
    print(json.dumps(rows) if args.json else render_table(rows))


@contextmanager
def serve_files() -> Iterator[list[str]]:
    """Yield the addresses of files on a server that runs within the block."""
    with tempfile.TemporaryDirectory() as folder, serve_s3(Path(folder) / "s3") as server:
        os.environ.update(server.environment())
        paths = [f"s3://{BUCKET}/file-{number}" for number in range(FILES)]
        for path in paths:
            storage.write_bytes(path, random.Random(path).randbytes(FILE_BYTES))
        yield paths


def measure_reads(paths: list[str], reads: int, size: int, at_once: int) -> dict[str, float]:
    """Return milliseconds of the clock and of the processor a read, of stretches of `size` bytes,
    so many of which are asked for at once.
    """
    chance = random.Random(size)
    wanted = []
    for number in range(reads):
        start = chance.randrange(FILE_BYTES - size)
        wanted.append((paths[number % len(paths)], start, start + size))
    began, cpu = time.monotonic(), read_cpu_seconds()
    storage.READS_AT_ONCE = at_once
    for content in storage.read_each(wanted):
        assert len(content) == size
    return {
        "kilobytes": size >> 10,
        "at_once": at_once,
        "milliseconds": round(1000 * (time.monotonic() - began) / reads, 2),
        "cpu_milliseconds": round(1000 * (read_cpu_seconds() - cpu) / reads, 2),
    }


def read_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def render_table(rows: list[dict[str, float]]) -> str:
    """Return the rows as Markdown."""
    lines = ["| kB | at once | ms a read | CPU ms a read |", "|---|---|---|---|"]
    lines += [
        f"| {row['kilobytes']} | {row['at_once']} | {row['milliseconds']} | "
        f"{row['cpu_milliseconds']} |"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
