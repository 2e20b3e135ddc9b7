"""Measure whether a vocabulary still fits: python -m model.vocabulary_fit --corpus NEW --vocabulary
DIR --output DIR

A new dump gets the vocabulary of the first one, or its shards could not go into the same training.
Where the vocabulary does not know many of its words, or cuts them into many more pieces, a warning
says that a new vocabulary, and with it a model trained anew, would be better. The new corpus's
pretrain split is compared with the dev split of the first corpus: the vocabulary was trained on
neither.
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from beam_jobs.core.command import main
from beam_jobs.core.errors import UserError
from beam_jobs.core.files import write_json
from beam_jobs.core.settings import read_options
from model.options import VocabularyFitOptions
from model.vocabulary import ReviewSample, measure_fit


def run(argv: list[str] | None = None) -> dict[str, Any]:
    description = "Measure how well a vocabulary fits another corpus."
    options = read_options(
        VocabularyFitOptions, argv, "python -m model.vocabulary_fit", description
    )
    started = time.monotonic()
    sample = ReviewSample(options.corpus, "pretrain", options.reviews)
    file = options.vocabulary / "tokenizer.json"
    if not file.exists():
        raise UserError(f"--vocabulary: no {file}; give the folder that model.vocabulary wrote")
    result = compare_fits(
        measure_fit(Tokenizer.from_file(str(file)), sample),
        read_first_fit(options.vocabulary),
        options.unknown_rate,
        options.tokens_per_word,
    )
    result |= {"reviews": sample.reviews, "seconds": round(time.monotonic() - started, 3)}
    options.output.mkdir(parents=True, exist_ok=True)
    write_json(options.output / "fit.json", result)
    return result


def read_first_fit(vocabulary: Path) -> dict[str, Any]:
    """Return the fit to the dev split of the vocabulary's own corpus; empty without a word, and
    for a published vocabulary, which was trained on no corpus of ours.
    """
    file = vocabulary / "vocabulary.json"
    fit: dict[str, Any] = json.loads(file.read_text()).get("fit", {}) if file.is_file() else {}
    return fit if fit.get("words") else {}


def compare_fits(
    new: Mapping[str, Any], first: Mapping[str, Any], unknown_limit: float, tokens_limit: float
) -> dict[str, Any]:
    """Return the two measures now and then, their rise, and a warning where it is too much."""
    result: dict[str, Any] = {**new, "warnings": []}
    if not first or not new["words"]:
        return result
    unknown_rose = new["unknown_rate"] - first["unknown_rate"]
    tokens_rose = new["tokens_per_word"] / first["tokens_per_word"] - 1
    result["first"] = first
    result["rose"] = {
        "unknown_rate": round(unknown_rose, 6),
        "tokens_per_word": round(tokens_rose, 4),
    }
    advice = "the vocabulary fits this dump worse: consider a whole run over all dumps"
    if unknown_rose > unknown_limit:
        told = (
            f"{new['unknown_rate']:.2%} of the words are unknown, {first['unknown_rate']:.2%} "
            "of the first dump's were"
        )
        result["warnings"].append(f"{told} (limit: {unknown_limit:.2%} more); {advice}")
    if tokens_rose > tokens_limit:
        told = (
            f"{new['tokens_per_word']:.3f} tokens per word, {first['tokens_per_word']:.3f} in "
            "the first dump"
        )
        result["warnings"].append(f"{told} (limit: {tokens_limit:.0%} more); {advice}")
    return result


if __name__ == "__main__":
    main(run)
