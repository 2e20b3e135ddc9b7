"""What stays flat as a dump grows: memory by the number of files, comparisons by that of reviews.

    python tests/bench/flatness.py --files 1000 10000 --reviews 80000 800000 [--input 'dumps/*.gz']

files    Resident memory of all processes of the corpus job, one review a file, two workers.
reviews  Pairs that the search for near duplicates compares, for each review. The texts are made of
         the input's sentences, as many as a review of it has, and as many of them as in the input
         repeat an earlier text in all but one word.
"""

import argparse
import glob
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from amazon_electra.beam_jobs.config import CorpusConfig
from amazon_electra.beam_jobs.corpus_job import make_corpus
from amazon_electra.beam_jobs.deduplication import near
from amazon_electra.beam_jobs.sample.sample_dump import write_sample
from tests.bench.dumps import SENTENCE_END, read_lines, read_record
from tests.bench.measuring import measure

BATCH = 5_000
THRESHOLD = 0.8


def read_texts(paths: list[str]) -> list[str]:
    """Return the texts of a dump, repeated ones too."""
    found = (read_record(line) for path in paths for line in read_lines(path))
    return [record["reviewText"] for record in found if record]


def measure_files(texts: list[str], count: int, folder: Path) -> None:
    """Print the memory of the corpus job of so many files."""
    dump, corpus = folder / "dump", folder / "corpus"
    dump.mkdir()
    for n in range(count):
        text = f"{texts[n % len(texts)]} Number {n}."
        review = {"reviewText": text, "overall": 1 + n % 5, "asin": f"B{n % 97}"}
        (dump / f"{n:07d}.json").write_text(json.dumps(review) + "\n", encoding="utf-8")
    beam = ["--direct_running_mode", "multi_processing", "--direct_num_workers", "2"]
    used = measure(run_corpus_job, str(dump), str(corpus), beam)
    shutil.rmtree(dump)
    shutil.rmtree(corpus)
    print(
        f"| {count:,} files | {used.peak_rss_mb:.0f} MB | {used.cpu_seconds:.0f} CPU s |",
        flush=True,
    )


def run_corpus_job(dump: str, corpus: str, beam: list[str]) -> None:
    make_corpus(CorpusConfig(), [dump], corpus, beam_options=beam)


def draw_texts(texts: list[str], copies: float, count: int) -> Iterator[str]:
    """Yield texts of drawn sentences; a share of `copies` repeats an earlier one but for a word."""
    draw = random.Random(0)
    reviews = [SENTENCE_END.split(text) for text in texts]
    sentences, lengths = [s for own in reviews for s in own], [len(own) for own in reviews]
    kept = list[str]()
    for _ in range(count):
        if kept and draw.random() < copies:
            words = draw.choice(kept).split(" ")
            words[draw.randrange(len(words))] = "really"
            yield " ".join(words)
            continue
        text = " ".join(draw.choice(sentences) for _ in range(draw.choice(lengths)))
        if len(kept) < 100_000:
            kept.append(text)
        yield text


def count_pairs(texts: Iterator[str]) -> tuple[int, int, int]:
    """Return how many texts there were, how many pairs of them the search compares, and how many
    texts nearly repeat the leader of a band.
    """
    bands, _ = near.choose_bands(THRESHOLD)
    signatures, batch = list[np.ndarray](), list[str]()
    for text in texts:
        batch.append(text)
        if len(batch) == BATCH:
            signatures.append(near.compute_signatures(batch))
            batch = []
    all_rows = np.concatenate([*signatures, near.compute_signatures(batch)])
    _, whole = np.unique(all_rows, axis=0, return_index=True)  # one of each text, as the job has
    rows = all_rows[whole]
    pairs, is_copy = 0, np.zeros(len(rows), bool)
    for band in range(bands):
        hashes = near.hash_band(rows, band, THRESHOLD)
        here = np.flatnonzero(hashes)
        _, leaders, which = np.unique(hashes[here], return_index=True, return_inverse=True)
        pairs += len(here) - len(leaders)
        leader = here[leaders][which]
        for first in range(0, len(here), near.PAIRS):
            part = slice(first, first + near.PAIRS)
            alike = (rows[here[part]] == rows[leader[part]]).mean(axis=1) >= THRESHOLD
            is_copy[here[part]] |= alike & (here[part] != leader[part])
    return len(all_rows), pairs, len(all_rows) - len(rows) + int(is_copy.sum())


def measure_pairs(name: str, texts: Iterator[str]) -> float:
    """Print the pairs a review; return the share of reviews that nearly repeat another."""
    count, pairs, copies = count_pairs(texts)
    print(f"| {count:,} {name} | {pairs / count:.3f} | {copies / count:.1%} |", flush=True)
    return copies / count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--input", nargs="*", help="JSON lines, gz or not (default: synthetic)")
    parser.add_argument("--files", type=int, nargs="*", default=[1_000, 10_000])
    parser.add_argument("--reviews", type=int, nargs="*", default=[80_000, 800_000])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flatness-") as scratch:
        folder = Path(scratch)
        paths = sorted(path for pattern in given.input or () for path in glob.glob(pattern))
        if not paths:
            write_sample(folder / "sample.json.gz", 2_000, 0)
            paths = [str(folder / "sample.json.gz")]
        texts = read_texts(paths)
        if given.files:
            print("| | memory | |\n| --- | --- | --- |")
        for count in given.files:
            measure_files(texts, count, folder)
    if given.reviews:
        print("\n| reviews | pairs a review | near copies |\n| --- | --- | --- |")
        copies = measure_pairs("of the input", iter(texts))
        for count in given.reviews:
            measure_pairs("drawn", draw_texts(texts, copies, count))


if __name__ == "__main__":
    main()
