"""How many tokens of a text networks read: more than a recipe says where texts are long."""

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from amazon_electra.flows.configuration.form import Finetuning
from amazon_electra.flows.stages.origin import find_positions
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.recipes import RECIPES

MAX_CUT = 0.25
"""Share of the texts that may be longer than what is read. With 22% of them longer, at 128 tokens,
the shop of docs/results.md was measured; a longer length was not."""
LONGEST = 512
"""Tokens that are read without being asked for."""
DEFAULT_TOKENS = 128
"""Where a recipe says nothing."""
SAMPLE = 1_000


@dataclass(frozen=True)
class TextLength:
    """What networks read of a text."""

    tokens: int
    longer: float
    """Share of the texts that are longer, which is cut."""
    default: int = DEFAULT_TOKENS
    """Tokens that the recipe says."""

    def describe(self) -> str:
        """Return a clause for the log and the report."""
        cut = f"{self.longer:.0%} of the reviews are longer"
        return f"networks read {self.tokens} tokens of a text; {cut}"


def measure_length(
    chosen: Finetuning,
    recipe: str,
    store: Store,
    corpus: Stage,
    origin: Stage | None,
    texts: Sequence[str] = (),
) -> TextLength:
    """Return what networks read of the first reviews of a corpus, or, until it is made, of the
    first texts of its dump; without a published encoder, what form or recipe say.
    """
    if not origin:
        return choose_length(chosen, recipe, np.zeros(1), None)
    name = f"{origin.inner}/tokenizer.json"
    if store.manifest(origin):
        tokenizer = store.fetch(origin, name) / name
    else:
        tokenizer = Path(origin.result.get("folder", ""), "tokenizer.json")
    made = store.manifest(corpus)
    names = [file["path"] for file in made["files"]] if made else []
    if first := min(fnmatch.filter(names, "corpus-*.parquet"), default=""):
        texts = read_texts(store.fetch(corpus, first) / first)
    is_counted = texts and tokenizer.is_file()
    lengths = count_tokens(tokenizer, texts) if is_counted else np.zeros(1)
    return choose_length(chosen, recipe, lengths, find_positions(store, origin))


def choose_length(
    chosen: Finetuning, recipe: str, lengths: np.ndarray, positions: int | None
) -> TextLength:
    """Return what networks read of texts of these lengths: as the form says, or else the recipe's
    length, doubled while more than MAX_CUT of the texts are longer, up to LONGEST or `positions`.
    """
    default = RECIPES[recipe].finetuning.max_length or DEFAULT_TOKENS
    tokens = chosen.max_length or default
    longest = chosen.max_length or min(LONGEST, positions or LONGEST)
    while tokens < longest and (lengths > tokens).mean() > MAX_CUT:
        tokens *= 2
    tokens = min(tokens, positions or tokens)
    return TextLength(tokens, float((lengths > tokens).mean()), default)


def read_texts(corpus_file: Path) -> list[str]:
    """Return the first reviews of a file of a corpus."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(corpus_file) as parquet:
        batch = next(parquet.iter_batches(SAMPLE, columns=["sentences"]))
    return [" ".join(one) for one in batch["sentences"].to_pylist()]


def count_tokens(tokenizer: Path, texts: Sequence[str]) -> np.ndarray:
    """Return the tokens of the first texts, int [n]."""
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_str(tokenizer.read_text(encoding="utf-8"))
    loaded.no_truncation()
    loaded.no_padding()
    return np.array([len(one) for one in loaded.encode_batch_fast(list(texts[:SAMPLE]))])
