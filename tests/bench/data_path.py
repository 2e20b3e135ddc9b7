"""The data path measured: reviews to shards, against the plain path, by workers and by size.

    python tests/bench/data_path.py [--input FILE…] [--only plain large] [--json]

Both sides are measured in CPU seconds of all their processes, in turn, imports done beforehand; of
several rounds the median. Speed-up is in seconds of the clock, and wants a machine that does
nothing else.

ratio_plain             CPU seconds of json, NLTK's Punkt, tokenizers and padding to 128 / ours
reviews_per_cpu_second  ours
two_worker_speedup      seconds with one worker / with two
peak_rss_mb             resident memory of all processes together, for 8 × the reviews
"""

import argparse
import glob
import gzip
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
from nltk.tokenize.punkt import PunktSentenceTokenizer
from tokenizers import Tokenizer

sys.path.insert(0, str(Path(__file__).parents[2]))
from amazon_electra.beam_jobs import corpus_job, shards_job
from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.beam_jobs.sample.sample_dump import write_sample
from amazon_electra.beam_jobs.text.punkt import decode_punkt
from amazon_electra.model import vocabulary
from tests.bench.dumps import write_dump
from tests.bench.measuring import Measured, measure

TIMES = 8
MAX_LENGTH = 128
BATCH_REVIEWS = 1000
SAMPLE_REVIEWS = 80_000  # of the synthetic dump, where no other is given
FLOOR = 1.8
"""Smallest `ratio_plain` with which the bench ends with 0; none with --json."""


def main() -> None:
    args = parse()
    with tempfile.TemporaryDirectory(prefix="data-path-", dir=args.scratch) as folder:
        results = run(args, Path(folder))
    if args.json:
        print(json.dumps(results))
        return
    for name, number in results.items():
        print(f"{name:30}{number:>14,}")
    if results.get("ratio_plain", FLOOR) < FLOOR:
        sys.exit(f"ratio_plain is below {FLOOR}")


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--input", nargs="+", help="JSON lines, gz or not (default: synthetic reviews)")
    p.add_argument("--reviews", type=int, help="take this many of the input (default: all)")
    p.add_argument("--rounds", type=int, default=3, help="against the plain path (default 3)")
    p.add_argument("--only", nargs="*", default=["plain", "large"], choices=["plain", "large"])
    p.add_argument("--scratch", help="folder for dumps and outputs: about 3 × the large dump")
    p.add_argument("--json", action="store_true", help="one line of JSON instead of the table")
    return p.parse_args()


def run(args: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Make the dumps, run all sides on them and return what was measured."""
    inputs = sorted(path for pattern in args.input or () for path in glob.glob(pattern))
    if not args.input:
        inputs = [str(folder / "sample.json.gz")]
        write_sample(Path(inputs[0]), SAMPLE_REVIEWS, seed=0)
    once = folder / "once"
    results: dict[str, float] = {"reviews": write_dump(inputs, once, args.reviews)}
    # Corpus and vocabulary that both sides share; not measured.
    measure(prepare, once, folder)
    if "plain" in args.only:
        results |= measure_against_plain(folder, args.rounds, results["reviews"])
    if "large" in args.only:
        results |= measure_large(inputs, folder, TIMES * results["reviews"])
    return results


def prepare(dump: Path, folder: Path) -> None:
    run_jobs(dump, None, folder, workers=1)
    words = ["--corpus", str(folder / "corpus"), "--output", str(folder / "vocabulary")]
    call_job(vocabulary.train_vocabulary, [*words, "--size", "50000"])


def run_jobs(dump: Path, words: Path | None, output: Path, workers: int) -> None:
    """Run both jobs as a user starts them; the corpus job alone without a vocabulary."""
    beam = ["--direct_running_mode", "multi_processing" if workers > 1 else "in_memory"]
    beam += ["--direct_num_workers", str(workers)]
    corpus = str(output / "corpus")
    # Every review on one side, so that both sides tokenize all of them.
    call_job(
        corpus_job.make_corpus,
        ["--input", str(dump), "--output", corpus, "--split", "pretrain=100", *beam],
    )
    if words:
        shards = ["--corpus", corpus, "--vocabulary", str(words)]
        call_job(shards_job.make_shards, [*shards, "--output", str(output / "shards"), *beam])


def run_plain(dump: Path, punkt: Path, vocabulary: Path, output: Path) -> None:
    """json, NLTK's Punkt, tokenizers; ids of a review one after another in rows of 128. One thread.

    It is spared what would only slow it: sentences are not padded one by one, and rows are kept in
    16 bits.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    splitter = PunktSentenceTokenizer(decode_punkt(punkt.read_text()))
    tokenizer = Tokenizer.from_file(str(vocabulary / "tokenizer.json"))
    with open(output, "wb") as rows:
        for file in sorted(dump.iterdir()):
            with gzip.open(file, "rb") as stream:
                batch: list[list[str]] = []
                for line in stream:
                    batch.append(splitter.tokenize(json.loads(line)["reviewText"]))
                    if len(batch) == BATCH_REVIEWS:
                        np.save(rows, pad_rows(batch, tokenizer))
                        batch = []
                np.save(rows, pad_rows(batch, tokenizer))


def pad_rows(batch: list[list[str]], tokenizer: Tokenizer) -> np.ndarray:
    """[rows, 128], 0 where a review ends."""
    flat = [sentence for review in batch for sentence in review]
    encodings = iter(tokenizer.encode_batch_fast(flat, add_special_tokens=False))
    rows = []
    for review in batch:
        ids = [i for _ in review for i in next(encodings).ids]
        rows += [ids[start : start + MAX_LENGTH] for start in range(0, len(ids), MAX_LENGTH)]
    out = np.zeros((len(rows), MAX_LENGTH), np.uint16)
    for row, ids in zip(out, rows, strict=True):
        row[: len(ids)] = ids
    return out


def measure_jobs(dump: Path, folder: Path, workers: int) -> Measured:
    output = folder / "output"
    found = measure(run_jobs, dump, folder / "vocabulary", output, workers)
    shutil.rmtree(output)
    return found


def measure_against_plain(folder: Path, rounds: int, reviews: float) -> dict[str, float]:
    once, theirs, ours = folder / "once", [], []
    punkt = folder / "corpus" / "punkt.json"
    for _ in range(rounds):
        theirs.append(
            measure(run_plain, once, punkt, folder / "vocabulary", folder / "plain.npy").cpu_seconds
        )
        ours.append(measure_jobs(once, folder, 1).cpu_seconds)
    plain, own = statistics.median(theirs), statistics.median(ours)
    return {
        "ratio_plain": round(plain / own, 3),
        "reviews_per_cpu_second": round(reviews / own, 1),
        "plain_cpu_seconds": round(plain, 2),
        "our_cpu_seconds": round(own, 2),
    }


def measure_large(inputs: list[str], folder: Path, reviews: int) -> dict[str, float]:
    large = folder / "large"
    write_dump(inputs, large, reviews)
    two = measure_jobs(large, folder, 2)
    single = measure_jobs(large, folder, 1)
    return {
        "large_reviews": reviews,
        "two_worker_speedup": round(single.seconds / two.seconds, 3),
        "peak_rss_mb": round(two.peak_rss_mb),
        "large_reviews_per_cpu_second": round(reviews / two.cpu_seconds, 1),
    }


if __name__ == "__main__":
    main()
