"""How many tokens of a text networks read: more than a recipe says where texts are long."""

import fnmatch
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


def measure_length(
    chosen: Finetuning, recipe: str, store: Store, corpus: Stage, origin: Stage | None
) -> tuple[int | None, str]:
    """Return the tokens that networks read of a text, None where the recipe says it, and a clause
    about them, by the first reviews of the corpus, once it and the published encoder are made.
    """
    if not origin:
        return chosen.max_length, ""
    lengths, made = np.zeros(1), store.manifest(corpus)
    names = (
        fnmatch.filter((file["path"] for file in made["files"]), "corpus-*.parquet") if made else []
    )
    if names and store.manifest(origin):
        first = min(names)
        name = f"{origin.inner}/tokenizer.json"
        lengths = count_tokens(store.fetch(origin, name) / name, store.fetch(corpus, first) / first)
    default = RECIPES[recipe].finetuning.max_length or DEFAULT_TOKENS
    tokens = choose_length(chosen.max_length, default, lengths, find_positions(store, origin))
    longer = f"{(lengths > tokens).mean():.0%} of the reviews are longer"
    return tokens, f"networks read {tokens} tokens of a text; {longer}" if names else ""


def choose_length(
    asked: int | None, default: int, lengths: np.ndarray, positions: int | None
) -> int:
    """Return what is asked for, or else the default, doubled while more than MAX_CUT of the texts
    are longer, up to LONGEST; at most as many as the encoder has positions for.
    """
    tokens, longest = asked or default, min(LONGEST, positions or LONGEST)
    while not asked and tokens < longest and (lengths > tokens).mean() > MAX_CUT:
        tokens *= 2
    return min(tokens, positions or tokens)


def count_tokens(tokenizer: Path, corpus_file: Path) -> np.ndarray:
    """Return the tokens of the first reviews of a file of a corpus, int [n]."""
    import pyarrow.parquet as pq
    from tokenizers import Tokenizer

    with pq.ParquetFile(corpus_file) as parquet:
        batch = next(parquet.iter_batches(SAMPLE, columns=["sentences"]))
    texts = [" ".join(one) for one in batch["sentences"].to_pylist()]
    loaded = Tokenizer.from_str(tokenizer.read_text(encoding="utf-8"))
    loaded.no_truncation()
    loaded.no_padding()
    return np.array([len(one) for one in loaded.encode_batch_fast(texts)])
