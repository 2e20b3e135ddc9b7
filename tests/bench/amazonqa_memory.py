"""Memory and speed of reading AmazonQA at its real size, of which a task needs only a sample.

    python tests/bench/amazonqa_memory.py --reviews DUMPS [--gigabytes 1.5] [--n_train 2000]
    [--json]

The set itself can't be downloaded here: a file of its form and size is written from the reviews of
dumps (JSON lines, gz), ten snippets and two answers a question, the answers being words of a
snippet. It is read in a process of its own, whose memory at its peak is compared with that of one
that reads the same task from a hundredth of the file. What a question takes that is trained on is
measured too, as text and as features: fine-tuning holds them all.
"""

import argparse
import glob
import gzip
import itertools
import json
import pickle
import random
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tokenizers import BertWordPieceTokenizer, Tokenizer

sys.path.insert(0, str(Path(__file__).parents[2]))
from model.finetuning.features.examples import Example, Sampling, load_examples
from model.finetuning.tasks import find_task
from tests.bench.peak_memory import peak_bytes

SNIPPETS, ANSWERS, SNIPPET_WORDS = 10, 2, 40
"""Gupta et al. 2019 keep the ten best snippets of a question; sizes of snippets and answers are
near theirs.
"""
ALLOWED_GROWTH = 1.2


def read_review_words(pattern: str) -> list[list[str]]:
    """Return the words of every review that can be parsed."""
    reviews = []
    for path in sorted(glob.glob(pattern)):
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
            for line in file:
                with suppress(ValueError, AttributeError):
                    reviews.append(json.loads(line).get("reviewText", "").split())
    return [words for words in reviews if words]


def questions(reviews: list[list[str]]) -> Iterator[str]:
    draw = random.Random(0)
    for number in itertools.count():
        snippets = [" ".join(draw.choice(reviews)[:SNIPPET_WORDS]) for _ in range(SNIPPETS)]
        answers = [
            {"answerText": " ".join(draw.choice(snippets).split()[:9])} for _ in range(ANSWERS)
        ]
        yield json.dumps({
            "qid": number, "asin": f"B{number // 6:09}", "category": "Made",
            "questionType": "descriptive",
            "questionText": " ".join(draw.choice(reviews)[:12]) + "?",
            "is_answerable": number % 5 < 3,
            "review_snippets": snippets, "answers": answers,
        })  # fmt: skip


def write(path: Path, reviews: list[list[str]], size: int) -> int:
    """Questions until the file has `size` bytes."""
    written = 0
    with path.open("w", encoding="utf-8") as file:
        for number, line in enumerate(questions(reviews), 1):
            written += file.write(line + "\n")
            if written >= size:
                return number
    raise AssertionError("questions never end")


def measured(folder: Path, n_train: int) -> dict[str, float]:
    """Of a process of its own: `read` below."""
    command = [sys.executable, __file__, "--read", str(folder), "--n_train", str(n_train)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def read(folder: Path, n_train: int) -> dict[str, float]:
    examples = load_examples(find_task("amazonqa"), folder, "train", Sampling(n=n_train))
    peak, cpu_seconds = peak_bytes(), time.process_time()
    return {
        "examples": len(examples),
        "with_span": sum(bool(example.answers) for example in examples),
        "cpu_seconds": round(cpu_seconds, 1),
        "peak_rss_mb": round(peak / 1024**2),
        **bytes_a_question(examples),
    }


def bytes_a_question(examples: list[Example]) -> dict[str, int]:
    """Of the texts and of the windows of 128 tokens that training holds, with a vocabulary made of
    the passages.
    """
    from model.finetuning.features.featurizer import Featurizer
    from model.finetuning.features.packed_features import PackedFeatures

    words = BertWordPieceTokenizer(lowercase=True)
    words.train_from_iterator(
        (str(e.pair) for e in examples), vocab_size=16_000, show_progress=False
    )
    tokenizer = Tokenizer.from_str(words.to_str())
    stored = pickle.dumps(examples)
    tracemalloc.start()
    read_again = pickle.loads(stored)
    texts_alone = tracemalloc.get_traced_memory()[0]
    features = PackedFeatures(
        Featurizer(tokenizer, "span", max_length=128).stream_features(read_again)
    )
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(features) >= len(examples)
    return {
        "text_bytes_a_question": round(texts_alone / len(examples)),
        "feature_bytes_a_question": round((held - texts_alone) / len(examples)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--reviews", help="glob of dumps, JSON lines, gz, `reviewText`")
    parser.add_argument("--gigabytes", type=float, default=1.5)
    parser.add_argument("--n_train", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        print(json.dumps(read(arguments.read, arguments.n_train)))
        return
    reviews = read_review_words(arguments.reviews or "")
    if not reviews:
        parser.error(f"--reviews {arguments.reviews}: no reviews there")
    numbers = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name, gigabytes in (
            ("hundredth", arguments.gigabytes / 100),
            ("whole", arguments.gigabytes),
        ):
            folder = Path(temporary, name)
            folder.mkdir()
            count = write(folder / "train-qar.jsonl", reviews, int(gigabytes * 1e9))
            numbers[name] = {"questions": count, **measured(folder, arguments.n_train)}
    growth = numbers["whole"]["peak_rss_mb"] / numbers["hundredth"]["peak_rss_mb"]
    if arguments.json:
        print(json.dumps({**numbers, "growth": growth}))
    else:
        for name, row in numbers.items():
            print(f"{name:10}", "  ".join(f"{key} {value:,}" for key, value in row.items()))
        print(f"growth of the peak: {growth:.2f}")
    sys.exit(growth > ALLOWED_GROWTH)


if __name__ == "__main__":
    main()
