"""Vocabulary of a corpus: WordPiece, trained on its pretrain split only.

`python -m model.vocabulary --corpus DIR --output DIR --size 50000`

`tokenizers` finds the pieces by byte-pair merges, most frequent pair first (its WordPieceTrainer wraps its BpeTrainer;
the likelihood criterion of Schuster and Nakajima, 2012, was never published as code), and applies them as BERT does:
longest match first. The trainer leaves two things to the order of a hash table, so that two runs may differ: which rare
characters enter the alphabet, and the ids of `##x`, by which merges of equal count are ordered. Both are settled here
before it starts, and the vocabulary is the same on every run, for any number of threads and any order of the files.
"""

import argparse
import hashlib
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from model import vocabulary_report
from model.atomic_file import atomic_path
from model.command import UserMistake, main
from model.json_file import write_json

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LARGEST_ALPHABET = 1000  # characters; tokenizers' BertWordPieceTokenizer.train has the same limit
SMALLEST_SIZE = 200
LEAST_COUNT = 2  # a pair seen once is not merged
MODEL_MAX_LENGTH = 512  # tokens
BATCH_ROWS = 4096
DEV_REVIEWS = 20_000  # enough for the third digit of a rate


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Trains, writes vocab.txt, tokenizer.json, tokenizer_config.json and vocabulary.json."""
    options = parser().parse_args(argv)
    started, cpu_started = time.monotonic(), _cpu_seconds()
    check(options)
    corpus = Path(options.corpus)
    sample = Sample(corpus, "pretrain", options.sample_reviews)
    if not sample.reviews_in_corpus:
        raise UserMistake(f"--corpus: {corpus} has no review in its pretrain split; give a larger dump")
    untrained_like = untrained(options.lower_case, options.strip_accents)
    others = {path: vocabulary_report.read_vocabulary(path, untrained_like) for path in options.compare}
    tokenizer = train(sample, options.size, options.lower_case, options.strip_accents, options.unused)
    report = {
        "size": tokenizer.get_vocab_size(),
        "lower_case": options.lower_case,
        "strip_accents": options.strip_accents,
        "unused": options.unused,
        "reviews": sample.reviews,
        "sentences": sample.sentences,
        "reviews_in_corpus": sample.reviews_in_corpus,
        "fit": fit(corpus, {"this": tokenizer, **others}),
    }
    return write(Path(options.output), tokenizer, report, started, cpu_started)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser("model.vocabulary", description="Trains a WordPiece vocabulary on a corpus.")
    p.add_argument("--corpus", required=True, metavar="DIR", help="what corpus_job wrote")
    p.add_argument("--output", required=True, metavar="DIR", help="where vocab.txt and tokenizer.json go")
    p.add_argument("--size", type=int, default=50_000, metavar="N", help="entries, special ones included (50,000)")
    p.add_argument("--lower_case", type=_boolean, default=True, metavar="BOOL", help="fold case (true)")
    p.add_argument(
        "--strip_accents", type=_boolean, default=None, metavar="BOOL", help="remove accents (what --lower_case says)"
    )
    p.add_argument("--unused", type=int, default=100, metavar="N", help="[unused…] slots kept free for later (100)")
    p.add_argument(
        "--sample_reviews", type=int, default=1_000_000, metavar="N", help="train on about N reviews (1,000,000)"
    )
    p.add_argument(
        "--compare", nargs="*", default=[], metavar="FILE", help="other vocab.txt files to measure on the dev split"
    )
    return p


def _boolean(text: str) -> bool:
    values = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return values[text.lower()]


def check(options: argparse.Namespace) -> None:
    """Settles what depends on another option and refuses what cannot work."""
    if options.strip_accents is None:
        options.strip_accents = options.lower_case
    if options.unused < 0:
        raise UserMistake(f"--unused: {options.unused} slots; give 0 or more")
    if options.sample_reviews < 1:
        raise UserMistake(f"--sample_reviews: {options.sample_reviews}; give 1 or more")
    if Path(options.output).exists() and not Path(options.output).is_dir():
        raise UserMistake(f"--output: {options.output} is a file; give a folder")
    if options.size - options.unused < SMALLEST_SIZE:
        raise UserMistake(
            f"--size: {options.size} entries with {options.unused} [unused] slots leave too few for words; "
            f"give --size {SMALLEST_SIZE + options.unused} or more, or fewer --unused"
        )


class Sample:
    """Reviews of one split, of a large corpus a sample by text hash: the same for any order or cut of its files.

    Iterating gives lists of sentences; `reviews` and `sentences` count what the last iteration gave.
    """

    def __init__(self, corpus: Path, split: str, about_reviews: int) -> None:
        self._files = sorted(corpus.glob("corpus-*.parquet"))
        if not self._files:
            raise UserMistake(f"--corpus: no corpus-*.parquet in {corpus}; give the folder that corpus_job wrote")
        if not (corpus / "corpus.json").exists():
            raise UserMistake(f"--corpus: no corpus.json in {corpus}: corpus_job has not ended; run it again")
        self._split = split
        self.reviews_in_corpus = sum(_count(file, split) for file in self._files)
        self._share = min(1.0, about_reviews / max(self.reviews_in_corpus, 1))
        self.reviews = self.sentences = 0

    def __iter__(self) -> Iterator[list[str]]:
        self.reviews = self.sentences = 0
        for file in self._files:
            for batch in _opened(file).iter_batches(BATCH_ROWS, columns=["text_hash", "split", "sentences"]):
                kept = np.array([split == self._split for split in batch["split"].to_pylist()], bool)
                if self._share < 1:
                    kept &= _fraction(batch["text_hash"]) < self._share
                sentences = batch.filter(kept)["sentences"].flatten().to_pylist()
                self.reviews += int(kept.sum())
                self.sentences += len(sentences)
                yield sentences


def _count(file: Path, split: str) -> int:
    splits = _opened(file).read(["split"])["split"].value_counts().to_pylist()
    return sum(s["counts"] for s in splits if s["values"] == split)


def _opened(file: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except (OSError, pa.ArrowException) as error:
        raise UserMistake(f"--corpus: {file} is not whole ({error}); run corpus_job again") from None


def _fraction(text_hashes: Any) -> np.ndarray:
    """The hashes of texts as numbers in [0, 1). Bytes 8–15, for the split may have been drawn from the first ones."""
    hashes = b"".join(text_hashes.to_pylist())
    return np.frombuffer(hashes, ">u8").reshape(-1, 2)[:, 1] / 2.0**64


def untrained(lower_case: bool, strip_accents: bool) -> Tokenizer:
    """BERT's WordPiece tokenizer, knowing the special entries only."""
    tokenizer = Tokenizer(models.WordPiece({token: i for i, token in enumerate(SPECIAL)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=strip_accents, lowercase=lower_case
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return tokenizer


def train(sample: Sample, size: int, lower_case: bool, strip_accents: bool, unused: int) -> Tokenizer:
    """A tokenizer of at most `size` entries: special, [unused…], characters, then pieces as they were merged."""
    learner = untrained(lower_case, strip_accents)
    alphabet = choose_alphabet(sample, learner, min(LARGEST_ALPHABET, (size - unused) // 8))
    continuing = [f"##{c}" for c in alphabet if len(learner.pre_tokenizer.pre_tokenize_str("a" + c)) == 1]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size - unused,
        min_frequency=LEAST_COUNT,
        special_tokens=SPECIAL + continuing,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    learner.train_from_iterator(sample, trainer)
    learned = sorted(learner.get_vocab(with_added_tokens=True).items(), key=lambda entry: entry[1])
    pieces = [piece for piece, _ in learned if piece not in SPECIAL]
    return build(pieces, lower_case, strip_accents, unused)


def choose_alphabet(sample: Sample, learner: Tokenizer, at_most: int) -> list[str]:
    """The most frequent characters after normalisation, ties by code point, in code-point order."""
    raw: Counter[str] = Counter()
    for sentences in sample:
        raw.update("".join(sentences))
    counts: Counter[str] = Counter()
    for character, count in raw.items():
        for normalised in learner.normalizer.normalize_str(character):
            counts[normalised] += count
    del counts[" "]
    return sorted(sorted(counts, key=lambda c: (-counts[c], c))[:at_most])


def build(pieces: list[str], lower_case: bool, strip_accents: bool, unused: int) -> Tokenizer:
    """The tokenizer as it is stored: [CLS] a [SEP] and [CLS] a [SEP] b [SEP]."""
    tokenizer = untrained(lower_case, strip_accents)
    entries = SPECIAL + [f"[unused{i}]" for i in range(unused)] + pieces
    tokenizer.model = models.WordPiece({piece: i for i, piece in enumerate(entries)}, unk_token="[UNK]")
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", SPECIAL.index("[CLS]")), ("[SEP]", SPECIAL.index("[SEP]"))],
    )
    return tokenizer


def fit(corpus: Path, tokenizers: dict[str, Tokenizer]) -> list[dict[str, Any]]:
    """How each vocabulary fits the dev split, which none of ours was trained on; printed too."""
    rows = vocabulary_report.compare(tokenizers, Sample(corpus, "dev", DEV_REVIEWS))
    print(vocabulary_report.as_text(rows), file=sys.stderr)
    return rows


def write(
    output: Path, tokenizer: Tokenizer, report: dict[str, Any], started: float, cpu_started: float
) -> dict[str, Any]:
    """Writes each file whole or not at all, vocabulary.json last; other files of the folder stay."""
    output.mkdir(parents=True, exist_ok=True)
    (output / "vocabulary.json").unlink(missing_ok=True)
    entries = sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    with atomic_path(output / "vocab.txt") as path:
        path.write_text("".join(f"{piece}\n" for piece, _ in entries), encoding="utf-8")
    with atomic_path(output / "tokenizer.json") as path:
        tokenizer.save(str(path))
    write_json(output / "tokenizer_config.json", tokenizer_config(report["lower_case"], report["strip_accents"]))
    fingerprint = hashlib.sha256((output / "tokenizer.json").read_bytes()).hexdigest()
    times = {"seconds": round(time.monotonic() - started, 3), "cpu_seconds": round(_cpu_seconds() - cpu_started, 3)}
    result = {**report, "fingerprint": fingerprint, **times}
    write_json(output / "vocabulary.json", result)
    return result


def tokenizer_config(lower_case: bool, strip_accents: bool) -> dict[str, Any]:
    """What AutoTokenizer reads beside tokenizer.json."""
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": lower_case,
        "strip_accents": strip_accents,
        "tokenize_chinese_chars": True,
        "model_max_length": MODEL_MAX_LENGTH,
        **{f"{token.strip('[]').lower()}_token": token for token in SPECIAL},
    }


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


if __name__ == "__main__":
    main(run)
