"""Reads the vocabulary of a published encoder, and gives another one vectors made of its own.

The entries of both keep their vectors, and each new one begins as the mean of the pieces into which
the old vocabulary would have cut it.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from model.published.architecture import Fail

if TYPE_CHECKING:  # the flows, which read entries, load no torch
    from torch import Tensor

UNKNOWN = "[UNK]"
NEEDED = ("[UNK]", "[CLS]", "[SEP]", "[MASK]")
BY_ENTRY = {  # weights with one row per vocabulary entry
    "electra.embeddings.word_embeddings.weight",
    "generator_lm_head.bias",
}
PADDED_TO = 128
"""Rows of a table are at most filled up to a multiple of this, for the speed of matrix products."""


def read_entries(folder: Path, fail: Fail) -> list[str]:
    """Return the entries by id, of vocab.txt or of tokenizer.json."""
    if (folder / "vocab.txt").is_file():
        return read_words(folder / "vocab.txt")
    if not (folder / "tokenizer.json").is_file():
        raise fail("put its vocab.txt beside the weights")
    return read_tokenizer_entries(folder / "tokenizer.json", fail)


def read_words(path: Path) -> list[str]:
    """Return the lines of a vocab.txt."""
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def read_tokenizer_entries(path: Path, fail: Fail) -> list[str]:
    """Return the entries of a tokenizer.json by id; UserError unless it is WordPiece."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        model, added = told["model"], told.get("added_tokens") or []
    except (ValueError, KeyError, TypeError) as error:
        raise fail(f"tokenizer.json is damaged ({error}); copy it again") from None
    kind = model.get("type") or ("BPE" if "merges" in model else "WordPiece")
    if kind != "WordPiece":
        raise fail(f"its tokenizer is {kind}; shards are made with WordPiece only")
    ids = {**model["vocab"], **{token["content"]: token["id"] for token in added}}
    entries = sorted(ids, key=lambda entry: ids[entry])
    if [ids[entry] for entry in entries] != list(range(len(entries))):
        raise fail("tokenizer.json leaves out ids, or gives one twice; copy it again")
    return entries


def check_entries(entries: list[str], rows: int, fail: Fail) -> None:
    """Raise UserError where a table of word vectors is not that of these entries."""
    missing = [token for token in NEEDED if token not in entries]
    surplus = rows - len(entries)
    if surplus < 0 or surplus >= PADDED_TO or UNKNOWN in missing:
        raise fail(
            f"its vocabulary ({len(entries)} entries) is not that of the weights ({rows} rows)"
        )
    if missing:
        raise fail(f"its vocabulary lacks {', '.join(missing)}; give a WordPiece tokenizer")


def fit_vocabulary(
    weights: dict[str, "Tensor"], old: list[str], new: list[str], fail: Fail
) -> dict[str, "Tensor"]:
    """Return the weights with one row for each new entry."""
    rows = min((len(t) for name, t in weights.items() if name in BY_ENTRY), default=len(old))
    check_entries(old, rows, fail)
    if old == new:
        return {name: t[: len(new)] if name in BY_ENTRY else t for name, t in weights.items()}
    mapping = map_vocabulary(old, new)
    return {
        name: _average_rows(tensor, mapping) if name in BY_ENTRY else tensor
        for name, tensor in weights.items()
    }


def map_vocabulary(old: list[str], new: list[str]) -> list[list[int]]:
    """Return for each new entry the old ids it is the mean of.

    These are its own id, or those of its pieces, or that of [UNK].
    """
    ids = {token: i for i, token in enumerate(old)}
    unknown = [ids[UNKNOWN]]
    return [[ids[t]] if t in ids else split_into_pieces(t, ids) or unknown for t in new]


def split_into_pieces(token: str, ids: dict[str, int]) -> list[int]:
    """Return the ids of a word's pieces, longest match first (WordPiece); [] if none fits."""
    continues = token.startswith("##")
    rest = token.removeprefix("##")
    found: list[int] = []
    while rest:
        prefix = "##" if continues or found else ""
        size = next((n for n in range(len(rest), 0, -1) if prefix + rest[:n] in ids), 0)
        if not size:
            return []
        found.append(ids[prefix + rest[:size]])
        rest = rest[size:]
    return found


def _average_rows(tensor: "Tensor", rows: list[list[int]]) -> "Tensor":
    import torch

    return torch.stack([tensor[row].mean(dim=0) for row in rows])
