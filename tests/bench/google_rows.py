"""How full the rows are that google-research/electra makes of a corpus: the plain step's real
tokens per position.

Follows ExampleBuilder of its build_pretraining_dataset.py, with a review as a document and the
corpus job's sentences as its lines: sentences are added up to a target length (one in twenty rows:
a random shorter one), a review's end ends the row, and what is longer than a row is cut off, hence
lost.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.dataset as ds
from tokenizers import Tokenizer


@dataclass(frozen=True)
class Fill:
    fill: float  # real tokens, special ones included, per position of the padded rows
    lost: float  # of the tokens of the text: cut off at a row's end


def measure(corpus: Path, vocabulary: Path, max_length: int, seed: int = 0) -> Fill:
    """Of the reviews pre-training sees: `corpus` as the corpus job leaves it, `vocabulary` with its
    tokenizer.json.
    """
    tokenizer = Tokenizer.from_file(str(vocabulary / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    rows = real = text = kept = 0
    draw = random.Random(seed)
    target = max_length
    for sentences in _documents(corpus):
        lengths = [
            len(line.ids)
            for line in tokenizer.encode_batch_fast(sentences, add_special_tokens=False)
        ]
        text += sum(lengths)
        waiting: list[int] = []
        for i in range(len(lengths)):
            waiting.append(lengths[i])
            if sum(waiting) >= target or i == len(lengths) - 1:
                first, second = _segments(waiting, target, max_length, draw)
                rows, kept = rows + 1, kept + first + second
                real += first + 2 + (second + 1 if second else 0)
                waiting = []
                target = draw.randint(5, max_length) if draw.random() < 0.05 else max_length
    return Fill(real / (rows * max_length), 1 - kept / text)


def _segments(
    lengths: list[int], target: int, max_length: int, draw: random.Random
) -> tuple[int, int]:
    """The lengths of the two halves of a row, after the cut."""
    wanted = 100_000 if draw.random() < 0.1 else (target - 3) // 2
    first = second = 0
    for length in lengths:
        fits = first == 0 or first + length < wanted
        if fits or (second == 0 and first < wanted and draw.random() < 0.5):
            first += length
        else:
            second += length
    first = min(first, max_length - 2)
    return first, min(second, max(0, max_length - first - 3))


def _documents(corpus: Path) -> Iterator[list[str]]:
    table = ds.dataset(sorted(corpus.glob("corpus-*.parquet")), format="parquet")
    for batch in table.to_batches(columns=["sentences"], filter=ds.field("split") == "pretrain"):
        yield from (sentences for sentences in batch.column("sentences").to_pylist() if sentences)
