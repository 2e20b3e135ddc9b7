"""The data path beside other tools: reviews as JSON to packed or grouped token ids, one table.

    python tests/bench/peers/data_path.py --input 'dumps/*.json.gz' --general-text 'text/*.gz' \
        --reviews 200 79278 800000 --workers 1 2 [--json]

CPU seconds of the whole process tree of each side's commands, start-up included, which other work
on the machine changes less than seconds of the clock; the ratio of a side's CPU seconds with two
workers to those with one says what the second costs. Each side reads the same files with the same
vocabulary. What the others do not do: cleaning, duplicates, sentences, a split without leaks, and
packing that loses nothing.
"""

import argparse
import glob
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.bench.dumps import write_dump
from tests.bench.measuring import measure, measure_commands
from tests.bench.peers.environments import ROOT, make_environment, make_parser, run_bench

HERE = Path(__file__).parent
PEERS = {
    "datatrove": ["datatrove[io,processing]==0.10.1"],
    "datasets": ["datasets==5.2.0", "transformers==5.23.0"],
}
"""Requirements of each; the script is data_path_NAME.py beside this file."""


def parse() -> argparse.Namespace:
    p = make_parser(__doc__)
    p.add_argument(
        "--general-text", nargs="*", default=[], metavar="GLOB", help="for reviews beyond the input"
    )
    p.add_argument("--reviews", nargs="+", type=int, default=[200, 79_278], help="sizes")
    p.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    p.add_argument("--vocabulary", type=Path, help="folder (default: trained on the first 20,000)")
    p.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(PEERS))
    return p.parse_args()


def run_sides(args: argparse.Namespace, folder: Path) -> list[dict]:
    """Run every side at every size; return one row for each."""
    general = sorted(path for pattern in args.general_text for path in glob.glob(pattern))
    pythons = {name: make_environment(args.environments / name, PEERS[name]) for name in args.peers}
    vocabulary = args.vocabulary or train_vocabulary(args.input, folder)
    rows = []
    for reviews in args.reviews:
        dump = folder / "dump"
        measure(write_dump, args.input, dump, reviews, general)
        for workers in args.workers:
            sides = {"ours": list_our_commands(dump, vocabulary, folder / "out", workers)}
            for name, python in pythons.items():
                script = [python, HERE / f"data_path_{name}.py", dump]
                sides[name] = [[*script, vocabulary / "tokenizer.json", folder / "out", workers]]
            for name, commands in sides.items():
                used = measure_commands(commands, ROOT if name == "ours" else folder)
                shutil.rmtree(folder / "out", ignore_errors=True)
                row = {"side": name, "reviews": reviews, "workers": workers}
                row |= {"cpu_seconds": round(used.cpu_seconds, 2), "seconds": round(used.seconds)}
                rows.append(row | {"peak_rss_mb": round(used.peak_rss_mb)})
                print(rows[-1], file=sys.stderr, flush=True)
        shutil.rmtree(dump)
    return rows


def train_vocabulary(inputs: list[str], folder: Path) -> Path:
    """Train the vocabulary that all sides share; not measured."""
    dump, corpus, vocabulary = folder / "first", folder / "first_corpus", folder / "vocabulary"
    measure(write_dump, inputs, dump, 20_000)
    python = [sys.executable, "-m"]
    job = [*python, "amazon_electra.beam_jobs.corpus_job", "--input", dump, "--output", corpus]
    train = [*python, "amazon_electra.model.vocabulary", "--corpus", corpus, "--size", 30_522]
    local = ["--direct_running_mode", "in_memory"]
    measure_commands([[*job, *local], [*train, "--output", vocabulary]], ROOT)
    return vocabulary


def list_our_commands(dump: Path, vocabulary: Path, output: Path, workers: int) -> list[list]:
    """Return both jobs as a user types them, with every review on the pretrain side."""
    mode = "multi_processing" if workers > 1 else "in_memory"
    beam = ["--direct_num_workers", workers, "--direct_running_mode", mode]
    corpus = ["--input", dump, "--output", output / "corpus", "--split", "pretrain=100"]
    shards = ["--corpus", output / "corpus", "--vocabulary", vocabulary]
    shards += ["--output", output / "shards"]
    python = [sys.executable, "-m"]
    return [
        [*python, "amazon_electra.beam_jobs.corpus_job", *corpus, *beam],
        [*python, "amazon_electra.beam_jobs.shards_job", *shards, *beam],
    ]


if __name__ == "__main__":
    run_bench(parse(), run_sides)
