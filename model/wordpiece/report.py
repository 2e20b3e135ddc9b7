"""Measure how well vocabularies fit a corpus: unknown words, tokens per word."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models

from beam_jobs.core.errors import UserError
from model.encoders.vocabulary import load_published_tokenizer

UNKNOWN = "[UNK]"


def compare_vocabularies(
    tokenizers: dict[str, Tokenizer], batches: Iterable[list[str]]
) -> list[dict[str, Any]]:
    """Return one row a vocabulary: size, words, unknown_rate (share of words), tokens_per_word.

    BERT's pre-tokenizer decides what a word is, punctuation marks included, so all rows count the
    same words.
    """
    tokens, unknown, words = (dict.fromkeys(tokenizers, 0) for _ in range(3))
    for sentences in batches:
        for name, tokenizer in tokenizers.items():
            for encoding in tokenizer.encode_batch(sentences, add_special_tokens=False):
                tokens[name] += len(encoding.ids)
                words[name] += len(set(encoding.word_ids))
                unknown[name] += encoding.tokens.count(UNKNOWN)
    return [
        {
            "vocabulary": name,
            "size": tokenizer.get_vocab_size(),
            "words": words[name],
            "unknown_rate": round(unknown[name] / max(words[name], 1), 6),
            "tokens_per_word": round(tokens[name] / max(words[name], 1), 4),
        }
        for name, tokenizer in tokenizers.items()
    ]


def read_vocabulary(path: str, like: Tokenizer) -> Tokenizer:
    """Return a folder's own tokenizer, or that of a vocab.txt, which normalizes and splits words
    as `like` does.
    """
    if Path(path).is_dir():
        return load_published_tokenizer(
            Path(path), lambda text: UserError(f"--compare {path}: {text}")
        )
    try:
        entries = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--compare: {path} cannot be read ({error}); give a vocab.txt") from None
    if UNKNOWN not in entries:
        raise UserError(
            f"--compare: {path} has no {UNKNOWN}; give a WordPiece vocab.txt, one entry a line"
        )
    made = Tokenizer(models.WordPiece({e: i for i, e in enumerate(entries)}, unk_token=UNKNOWN))
    made.normalizer, made.pre_tokenizer = like.normalizer, like.pre_tokenizer
    return made


def format_table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table for people."""
    lines = [f"{'vocabulary':32} {'size':>7} {'unknown':>9} {'tokens/word':>12}"]
    for row in rows:
        name = row["vocabulary"] if len(row["vocabulary"]) <= 32 else "…" + row["vocabulary"][-31:]
        lines.append(
            f"{name:32} {row['size']:7,} {row['unknown_rate']:9.4%} {row['tokens_per_word']:12.3f}"
        )
    return "\n".join(lines)
