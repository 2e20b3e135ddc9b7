"""How many tokens of a text the networks of a run read: more than its recipe says where many texts
are longer.
"""

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
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
    """Return what the networks of a run read of the reviews of a corpus, or of the first texts of
    its dump as long as it is not made; without a published encoder, what form or recipe say.
    """
    if not origin:
        return choose_length(chosen, recipe, None, None)
    lengths = measure_lengths(store, corpus, origin, texts)
    return choose_length(chosen, recipe, lengths, find_positions(store, origin))


def choose_length(
    chosen: Finetuning, recipe: str, lengths: np.ndarray | None, positions: int | None
) -> TextLength:
    """Return what networks read of texts of these lengths, in tokens: as the form says, or else the
    recipe's length, doubled while more than MAX_CUT of the texts are longer, up to LONGEST; at most
    the `positions` of the encoder. Of lengths that are not known (None) none is longer.
    """
    lengths = np.zeros(1) if lengths is None else lengths
    default = RECIPES[recipe].finetuning.max_length or DEFAULT_TOKENS
    tokens = chosen.max_length or default
    while not chosen.max_length and tokens < min(LONGEST, positions or LONGEST):
        if (lengths > tokens).mean() <= MAX_CUT:
            break
        tokens *= 2
    tokens = min(tokens, positions or tokens)
    return TextLength(tokens, float((lengths > tokens).mean()), default)


def measure_lengths(
    store: Store, corpus: Stage, origin: Stage, texts: Sequence[str] = ()
) -> np.ndarray | None:
    """Return the tokens of the first reviews of a corpus, int [n], or of these texts as long as it
    is not made; None where nothing is there to count.
    """
    name = f"{origin.inner}/tokenizer.json"
    folder = origin.result.get("folder")
    tokenizer = Path(folder, "tokenizer.json") if folder else None
    if store.manifest(origin):
        tokenizer = store.fetch(origin, name) / name
    if not tokenizer or not tokenizer.is_file():
        return None
    made = store.manifest(corpus)
    names = [file["path"] for file in made["files"]] if made else []
    if first := min(fnmatch.filter(names, "corpus-*.parquet"), default=""):
        return measure_file(str(tokenizer), str(store.fetch(corpus, first) / first))
    return count_tokens(str(tokenizer), texts) if texts else None


@lru_cache(maxsize=8)
def measure_file(tokenizer: str, corpus_file: str) -> np.ndarray:
    """Return the tokens of the first reviews of a file of a corpus."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(corpus_file) as parquet:
        batch = next(parquet.iter_batches(SAMPLE, columns=["sentences"]))
    return count_tokens(tokenizer, [" ".join(one) for one in batch["sentences"].to_pylist()])


def count_tokens(tokenizer: str, texts: Sequence[str]) -> np.ndarray:
    """Return the tokens of the first texts, int [n]."""
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_str(Path(tokenizer).read_text(encoding="utf-8"))
    loaded.no_truncation()
    loaded.no_padding()
    return np.array([len(one) for one in loaded.encode_batch_fast(list(texts[:SAMPLE]))])
