"""What a dump of many small files in an S3 bucket costs its driver before the first unit is made,
and a worker what it holds of many units.

    python tests/bench/many_files.py [--files 1000 5000 10000] [--units 1000 10000]

The server is SeaweedFS on this machine, which counts its requests. "Before the first unit": the
files are listed and looked at, the graph is built and serialized as an engine gets it, the first
file is cut and prepared. Of units the bench joins where their buckets begin and searches one of 128
parts for copies, both in a folder. Memory is beyond that of the same process with nothing to do.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import apache_beam as beam
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from beam_jobs.config import CorpusOptions
from beam_jobs.corpus import plan, prepare
from beam_jobs.corpus_job import MakeCorpus
from beam_jobs.deduplication import buckets, exact
from beam_jobs.reading.work_units import PreparedUnit, cut_file
from tests.bench.measuring import measure
from tests.s3_server import BUCKET, S3Server, connect, serve_s3

UPLOADS = 500
"""Files that are put at once."""
ROWS = 16
"""Of a unit whose copies are searched."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, nargs="*", default=[1_000, 5_000, 10_000])
    parser.add_argument("--units", type=int, nargs="*", default=[1_000, 10_000])
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    idle = measure(time.sleep, 0.5).peak_rss_mb
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        with serve_s3(Path(folder, "s3")) as server:
            os.environ.update(server.environment())
            there = 0
            for files in sorted(args.files):
                put_files(server, there, files)
                there = files
                rows.append(measure_files(server, files, Path(folder), idle))
                print(rows[-1], file=sys.stderr, flush=True)
        for units in args.units:
            rows.append(measure_units(units, Path(folder, f"{units}"), idle))
            print(rows[-1], file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps(rows))


def put_files(server: S3Server, first: int, last: int) -> None:
    """Put files of a review each into the bucket."""
    for begin in range(first, last, UPLOADS):
        numbers = range(begin, min(last, begin + UPLOADS))
        texts = {i: f"Mixer {i} works well, and I would buy it again." for i in numbers}
        records = {
            f"{BUCKET}/dump/{i:06d}.json": json.dumps({"text": text, "stars": 1 + i % 5}).encode()
            for i, text in texts.items()
        }
        connect(server).pipe(records)


def measure_files(server: S3Server, files: int, folder: Path, idle: float) -> dict[str, float]:
    told, before = folder / f"{files}.json", server.read_counter("request_total")
    output = f"s3://{BUCKET}/corpus-{files}"
    found = measure(reach_first_unit, f"s3://{BUCKET}/dump/*.json", output, told)
    return {
        "files": files,
        "seconds": round(found.seconds, 1),
        "cpu_seconds": round(found.cpu_seconds, 1),
        "memory_mb": round(found.peak_rss_mb - idle),
        "requests": server.read_counter("request_total") - before,
        "graph_mb": round(json.loads(told.read_text()) / 1e6, 2),
    }


def reach_first_unit(pattern: str, output: str, told: Path) -> None:
    """Do what comes before the first unit, and that one; leave the bytes of the graph in a file."""
    options = CorpusOptions(input=((pattern,),), output=output)
    made = plan.plan_corpus(options, ["--direct_running_mode=in_memory"])
    pipeline = beam.Pipeline(options=made.engine)
    _ = pipeline | MakeCorpus(made)
    told.write_text(str(pipeline.to_runner_api().ByteSize()))
    [unit] = cut_file(made.files[0], made.unit_bytes, made.folders.cuts)
    assert prepare.prepare_unit(unit, made.preparation).prepared == 1


def measure_units(units: int, folder: Path, idle: float) -> dict[str, float]:
    folder.mkdir()
    counts = [write_unit(folder, number) for number in range(units)]
    found = measure(search_part, counts, str(folder))
    return {
        "units": units,
        "seconds": round(found.seconds, 1),
        "cpu_seconds": round(found.cpu_seconds, 1),
        "memory_mb": round(found.peak_rss_mb - idle),
    }


def write_unit(folder: Path, number: int) -> PreparedUnit:
    """Leave the hashes of a unit that the search reads, and where its buckets begin."""
    rng, name = np.random.default_rng(number), f"{number:07d}-00000"
    packed = exact.pack_rows(rng.bytes(16 * ROWS), np.arange(ROWS, dtype=np.uint64))
    none = buckets.find_starts(np.empty(0, np.uint64))
    starts = [buckets.find_starts(packed["high"].astype(np.uint64)), *[none] * 3]
    (folder / f"{name}.hashes").write_bytes(packed.tobytes())
    (folder / f"{name}.starts").write_bytes(np.concatenate(starts).tobytes())
    return PreparedUnit(name, ROWS, file=f"{number}.json", read=ROWS, lines=ROWS)


def search_part(counts: list[PreparedUnit], folder: str) -> None:
    joined = buckets.join_unit_starts(counts, folder)
    list(exact.find_in_part((0, 128, 1024), folder, joined, buckets.BucketedFiles()))


if __name__ == "__main__":
    main()
