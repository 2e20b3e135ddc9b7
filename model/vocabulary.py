"""Train the WordPiece vocabulary of a corpus, on its pretrain split only. The alphabet and the
order of `##x` are fixed first: `tokenizers` leaves both to a hash table, so that runs would differ.
"""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer, trainers
from typing_extensions import Doc

from amazon_electra.beam_jobs.core.errors import refuse, require
from amazon_electra.beam_jobs.core.files import make_writable_folder, write_json
from amazon_electra.beam_jobs.core.storage import hash_file
from amazon_electra.model.config import MIN_VOCABULARY, VocabularyConfig
from amazon_electra.model.results import VocabularyResult
from amazon_electra.model.wordpiece import (
    SPECIAL,
    build_tokenizer_of,
    list_entries,
    make_untrained_tokenizer,
    write_tokenizer,
)

MAX_ALPHABET = 1000  # characters; tokenizers' BertWordPieceTokenizer.train has the same limit
MIN_COUNT = 2  # a pair seen once is not merged
BATCH_ROWS = 4096
SPLIT = "pretrain"


def train_vocabulary(
    config: VocabularyConfig,
    corpus: Annotated[str | Path, Doc("folder that corpus_job wrote")],
    output: Annotated[str | Path, Doc("folder for vocab.txt and tokenizer.json")],
) -> VocabularyResult:
    """Train a WordPiece vocabulary on the pretrain split of a corpus, into the folder `output`."""
    corpus, output = Path(corpus), Path(output)
    make_writable_folder("output", output)
    least = MIN_VOCABULARY + config.unused
    require(config.size >= least, f"must be at least {least} with `unused`", "size", config.size)
    started, cpu_started = time.monotonic(), time.process_time()
    strip_accents = config.lower_case if config.strip_accents is None else config.strip_accents
    sample = ReviewSample(corpus, config.sample_reviews)
    require(sample.reviews_in_corpus, "no review in its pretrain split", "corpus", corpus)
    tokenizer = train_tokenizer(sample, config, strip_accents)
    folding = tokenizer.normalizer
    result = {"size": tokenizer.get_vocab_size(), "lower_case": folding.lowercase}
    result |= {"strip_accents": folding.strip_accents, "unused": config.unused}
    result |= {n: getattr(sample, n) for n in ("reviews", "sentences", "reviews_in_corpus")}
    # each file whole or not at all, vocabulary.json last; other files of the folder stay
    (output / "vocabulary.json").unlink(missing_ok=True)
    write_tokenizer(output, tokenizer)
    result["fingerprint"] = hash_file(output / "tokenizer.json")
    result["seconds"] = round(time.monotonic() - started, 3)
    result["cpu_seconds"] = round(time.process_time() - cpu_started, 3)
    write_json(output / "vocabulary.json", result)
    return VocabularyResult.of(result)


class ReviewSample:
    """Reviews of the pretrain split; of a large corpus a sample by text hash, the same for any
    order or cut of its files. Iterating gives lists of sentences; `reviews` and `sentences` count
    those of the last iteration.
    """

    def __init__(self, corpus: Path, about_reviews: int) -> None:
        self._files = sorted(corpus.glob("corpus-*.parquet"))
        is_corpus = self._files and (corpus / "corpus.json").exists()
        require(is_corpus, "no corpus-*.parquet with corpus.json there", "corpus", corpus)
        self.reviews_in_corpus = sum(
            count["counts"]
            for file in self._files
            for count in _open_parquet(file).read(["split"])["split"].value_counts().to_pylist()
            if count["values"] == SPLIT
        )
        self._share = min(1.0, about_reviews / max(self.reviews_in_corpus, 1))
        self.reviews = self.sentences = 0

    def __iter__(self) -> Iterator[list[str]]:
        self.reviews = self.sentences = 0
        for file in self._files:
            for batch in _open_parquet(file).iter_batches(
                BATCH_ROWS, columns=["text_hash", "split", "sentences"]
            ):
                kept = np.array([s == SPLIT for s in batch["split"].to_pylist()], bool)
                if self._share < 1:
                    # numbers in [0, 1) of bytes 8 to 15: the first may have drawn the split
                    hashes = b"".join(batch["text_hash"].to_pylist())
                    numbers = np.frombuffer(hashes, ">u8").reshape(-1, 2)[:, 1] / 2.0**64
                    kept &= numbers < self._share
                sentences = batch.filter(kept)["sentences"].flatten().to_pylist()
                self.reviews += int(kept.sum())
                self.sentences += len(sentences)
                yield sentences


def _open_parquet(file: Path) -> pq.ParquetFile:
    why = "not whole ({}); run corpus_job again"
    with refuse(OSError, pa.ArrowException, message=why, field="corpus", value=file):
        parquet = pq.ParquetFile(file)
    return parquet


def train_tokenizer(
    sample: ReviewSample, config: VocabularyConfig, strip_accents: bool
) -> Tokenizer:
    """Return a tokenizer: special entries, [unused…], characters, then pieces by their merges."""
    learner = make_untrained_tokenizer(config.lower_case, strip_accents)
    learnt = config.size - config.unused
    alphabet = choose_alphabet(sample, learner, min(MAX_ALPHABET, learnt // 8))
    continuing = [
        f"##{c}" for c in alphabet if len(learner.pre_tokenizer.pre_tokenize_str("a" + c)) == 1
    ]
    trainer = trainers.WordPieceTrainer(
        vocab_size=learnt,
        min_frequency=MIN_COUNT,
        special_tokens=SPECIAL + continuing,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    learner.train_from_iterator(sample, trainer)
    pieces = [piece for piece in list_entries(learner) if piece not in SPECIAL]
    entries = SPECIAL + [f"[unused{i}]" for i in range(config.unused)] + pieces
    return build_tokenizer_of(entries, config.lower_case, strip_accents)


def choose_alphabet(sample: ReviewSample, learner: Tokenizer, at_most: int) -> list[str]:
    """Return the most frequent characters after normalization, in code-point order."""
    raw: Counter[str] = Counter()
    for sentences in sample:
        raw.update("".join(sentences))
    counts: Counter[str] = Counter()
    for character, count in raw.items():
        for normalised in learner.normalizer.normalize_str(character):
            counts[normalised] += count
    del counts[" "]
    return sorted(sorted(counts, key=lambda c: (-counts[c], c))[:at_most])


if __name__ == "__main__":
    from amazon_electra.beam_jobs.core.command_line import run_as_command

    run_as_command(train_vocabulary)
