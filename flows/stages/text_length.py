"""How many tokens of a text the networks of a run read: more than its recipe says where many texts
are longer.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np

from amazon_electra.flows.configuration.form import Finetuning
from amazon_electra.flows.stages.origin import (
    ENCODER,
    POSITIONS,
    describe_origin,
    find_origin_folder,
)
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
TOKENIZER = "tokenizer.json"


def describe_cut(tokens: int, longer: float) -> str:
    """Return a clause about what networks read of a text, and how many are longer, as a share."""
    return f"networks read {tokens} tokens of a text; {longer:.0%} of the reviews are longer"


@dataclass(frozen=True)
class TextLength:
    """What networks read of a text."""

    tokens: int
    longer: float
    """Share of the texts that are longer, which is cut."""
    default: int
    """Tokens that the recipe says."""
    default_longer: float

    def describe(self) -> str:
        """Return a clause for the log and the report."""
        line = describe_cut(self.tokens, self.longer)
        if self.tokens > self.default:
            line += f" ({self.default_longer:.0%} are longer than the recipe's {self.default})"
        return line


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
    return TextLength(
        tokens, float((lengths > tokens).mean()), default, float((lengths > default).mean())
    )


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
    lengths = measure_lengths(store, corpus, origin)
    folder = find_origin_folder(store, origin)
    if lengths is None and texts and folder and (folder / TOKENIZER).is_file():
        lengths = count_tokens(str(folder / TOKENIZER), texts)
    return choose_length(chosen, recipe, lengths, find_positions(store, origin))


def measure_lengths(store: Store, corpus: Stage, origin: Stage) -> np.ndarray | None:
    """Return the tokens of the first reviews of a corpus, int [n]; None where it, or the encoder,
    is not made yet.
    """
    made, loaded = store.manifest(corpus), store.manifest(origin)
    name, file = f"{ENCODER}/{TOKENIZER}", re.compile(r"corpus-.*\.parquet")
    names = sorted(f["path"] for f in made["files"] if file.fullmatch(f["path"])) if made else []
    if not names or not loaded or not any(f["path"] == name for f in loaded["files"]):
        return None
    first = store.fetch(corpus, names[0]) / names[0]
    return measure_file(str(store.fetch(origin, name) / name), str(first))


def find_positions(store: Store, origin: Stage) -> int | None:
    return describe_origin(store, origin).get(POSITIONS)


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
    encoded = loaded.encode_batch_fast(list(islice(texts, SAMPLE)))
    return np.array([len(one) for one in encoded])
