"""Reads vocabulary and tokenizer of an encoder, and gives another vocabulary vectors made of its
own.

The entries of both keep their vectors, and each new one begins as the mean of the pieces into which
the old vocabulary would have cut it.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from beam_jobs.core.nesting import load_json
from model.encoders.places import Fail
from model.wordpiece import build_tokenizer_of

if TYPE_CHECKING:  # the flows, which read entries, load no torch
    from torch import Tensor

UNKNOWN = "[UNK]"
NEEDED = ("[UNK]", "[CLS]", "[SEP]", "[MASK]")
BY_ENTRY = {  # weights with one row per vocabulary entry
    "electra.embeddings.word_embeddings.weight",
    "generator_lm_head.bias",
}
BERT_PARTS = {
    "model": (models.WordPiece, "WordPiece"),
    "normalizer": (normalizers.BertNormalizer, "BertNormalizer"),
    "pre_tokenizer": (pre_tokenizers.BertPreTokenizer, "BertPreTokenizer"),
}
"""What the ids of words can be remembered for (beam_jobs/packing/tokenization.py)."""
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
        told = load_json(path.read_text(encoding="utf-8"))
        model, added = told["model"], told.get("added_tokens") or []
        kind = model.get("type") or ("BPE" if "merges" in model else "WordPiece")
        ids = {**model["vocab"]} if kind == "WordPiece" else {}
        ids |= {token["content"]: token["id"] for token in added}
        entries = sorted(ids, key=lambda entry: int(ids[entry]))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        why = " ".join(str(error).split())
        raise fail(f"tokenizer.json is damaged ({why}); copy it again") from None
    if kind != "WordPiece":
        raise fail(f"its tokenizer is {kind}; shards are made with WordPiece only")
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


def load_published_tokenizer(folder: Path, fail: Fail) -> Tokenizer:
    """Return the folder's tokenizer without truncation and padding.

    An old folder has only a vocab.txt: then it is BERT's, which folds case unless
    tokenizer_config.json says otherwise. Raise UserError unless it is one of BERT's.
    """
    file = folder / "tokenizer.json"
    entries = read_tokenizer_entries(file, fail) if file.is_file() else read_entries(folder, fail)
    missing = [token for token in NEEDED if token not in entries]
    if missing:
        raise fail(f"its vocabulary lacks {', '.join(missing)}; shards need BERT's tokenizer")
    if not file.is_file():
        told = _read_tokenizer_config(folder, fail)
        return build_tokenizer_of(
            entries, bool(told.get("do_lower_case", True)), told.get("strip_accents")
        )
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises no class of its own
        raise fail(f"tokenizer.json is damaged ({error}); copy it again") from None
    for part, (kind, name) in BERT_PARTS.items():
        if not isinstance(getattr(tokenizer, part), kind):
            other = type(getattr(tokenizer, part)).__name__
            raise fail(f"the {part} of its tokenizer is {other}; shards need BERT's, {name}")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _read_tokenizer_config(folder: Path, fail: Fail) -> dict[str, Any]:
    file = folder / "tokenizer_config.json"
    try:
        told: dict[str, Any] = load_json(file.read_text("utf-8")) if file.is_file() else {}
    except ValueError as error:
        raise fail(f"tokenizer_config.json is damaged ({error}); copy it again") from None
    return told
