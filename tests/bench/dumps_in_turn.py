"""Dumps that arrive in turn, against all of them at once: the same corpus, each at the cost of what
is new in it.

    python tests/bench/dumps_in_turn.py --dump FILES --dump FILES … [--json]

Each --dump is one arrival, in this order. CPU seconds are those of the corpus job and all its
processes, start-up included. Exits with 1 where the corpora differ in a review's id or a sentence.
"""

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

ROOT = Path(__file__).parents[2]


def corpus(output: Path, *arguments: str) -> dict[str, Any]:
    """Reviews read and kept, and the CPU seconds it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "beam_jobs.corpus_job", "--output", str(output), *arguments]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = json.loads(done.stdout.splitlines()[-1])
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"read": told["read"], "kept": told["kept"], "cpu_seconds": round(seconds, 1)}


def digest(corpora: Iterable[Path]) -> str:
    """Of the ids and sentences of all reviews, whatever their order."""
    rows = []
    for file in (file for folder in corpora for file in folder.glob("corpus-*.parquet")):
        table = pq.read_table(file, columns=["review_id", "sentences"])
        rows += zip(table["review_id"].to_pylist(), table["sentences"].to_pylist(), strict=True)
    return hashlib.sha256(repr(sorted(rows)).encode()).hexdigest()


def measured(dumps: list[list[str]], folder: Path) -> dict[str, Any]:
    rows, corpora = {}, list[Path]()
    for number, files in enumerate(dumps, 1):
        seen = ["--seen", *map(str, corpora)] if corpora else []
        corpora.append(folder / str(number))
        rows[f"arrival {number}"] = corpus(corpora[-1], "--input", *files, *seen)
    inputs = [word for files in dumps for word in ("--input", *files)]
    rows["all at once"] = corpus(
        folder / "once", *inputs, "--punkt", str(corpora[0] / "punkt.json")
    )
    return {"rows": rows, "same": digest(corpora) == digest([folder / "once"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--dump", nargs="+", action="append", required=True, metavar="FILE", help="one arrival"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    dumps = [[str(Path(file).resolve()) for file in files] for files in arguments.dump]
    with tempfile.TemporaryDirectory() as folder:
        found = measured(dumps, Path(folder))
    if arguments.json:
        print(json.dumps(found))
    else:
        for name, row in found["rows"].items():
            print(f"{name:12}", "  ".join(f"{key} {value:>8,}" for key, value in row.items()))
        print("the same reviews and sentences" if found["same"] else "the corpora differ")
    sys.exit(not found["same"])


if __name__ == "__main__":
    main()
