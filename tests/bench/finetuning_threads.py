"""How much sooner a fine-tuning that has the machine to itself ends with more threads.

    python tests/bench/finetuning_threads.py --input 'dumps/*.json.gz' --encoder MODEL \
        [--threads 1 2] [--reviews 500] [--rounds 2] [--json]

MODEL is a folder with an encoder and its tokenizer. Each run is `python -m model.finetune` as a
study starts it, with another number of threads, in turn: wall seconds of the training and its
evaluations on dev, of the whole command, its CPU seconds, and whether the weights are byte for byte
those of the first. The least of the rounds counts, as other work only adds.
"""

import argparse
import glob
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.bench.peers.labelled_reviews import write_splits

ROOT = Path(__file__).parents[2]


def main() -> None:
    args = parse()
    with tempfile.TemporaryDirectory(prefix="finetuning-threads-") as folder:
        rows = measure_threads(args, Path(folder))
    print(json.dumps(rows) if args.json else "\n".join(format_row(row) for row in rows))


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--input", nargs="+", required=True, metavar="GLOB", help="dumps of reviews")
    p.add_argument("--encoder", type=Path, required=True, help="folder of an encoder")
    p.add_argument("--threads", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    p.add_argument("--reviews", type=int, default=500, help="of the training")
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--json", action="store_true", help="a line of JSON instead of the table")
    return p.parse_args()


def measure_threads(args: argparse.Namespace, folder: Path) -> list[dict]:
    """Return a row for each number of threads."""
    inputs = sorted(path for pattern in args.input for path in glob.glob(pattern))
    write_splits(inputs, folder / "data", args.reviews)
    runs: dict[int, list[dict]] = {threads: [] for threads in args.threads}
    for number in range(args.rounds):
        for threads in args.threads:
            output = folder / f"{threads}-{number}"
            runs[threads].append(finetune(args.encoder.resolve(), folder / "data", output, threads))
    first = runs[args.threads[0]]
    best = {
        threads: {key: min(run[key] for run in mine) for key in ("training", "whole", "cpu")}
        for threads, mine in runs.items()
    }
    return [
        {"threads": threads}
        | {f"{key}_seconds": round(value, 2) for key, value in best[threads].items()}
        | {"times_as_fast": round(best[args.threads[0]]["whole"] / best[threads]["whole"], 2)}
        | {"same_weights": {run["weights"] for run in mine} == {first[0]["weights"]}}
        for threads, mine in runs.items()
    ]


def finetune(encoder: Path, data: Path, output: Path, threads: int) -> dict:
    """Run the fine-tuning in a process of its own; return its seconds and a hash of its weights."""
    command = [sys.executable, "-m", "model.finetune", "--encoder", str(encoder)]
    command += ["--task", "table:text=text,label=label", "--data", str(data)]
    command += ["--output", str(output), "--learning-rate", "1e-4", "--device", "cpu"]
    command += ["--set", "epochs=1", "--set", "max_length=128"]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, cwd=ROOT)
    whole, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    result = json.loads((output / "result.json").read_text())
    [attempt] = result["tried"]
    return {
        "training": result["n_train"] / attempt["examples_per_second"],
        "whole": whole,
        "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "weights": hashlib.sha256((output / "model.safetensors").read_bytes()).hexdigest(),
    }


def format_row(row: dict) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in row.items())


if __name__ == "__main__":
    main()
