"""Measure whether a vocabulary still fits a new dump.

A new dump gets the vocabulary of the first one, or its shards could not go into the same training.
Where the vocabulary does not know many of its words, or cuts them into many more pieces, a warning
says that a new vocabulary, and with it a model trained anew, would be better. The new corpus's
pretrain split is compared with the dev split of the first corpus: the vocabulary was trained on
neither.
"""

import json
import time
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.model.options import VocabularyFitConfig
from amazon_electra.model.vocabulary import ReviewSample, measure_fit


def measure_vocabulary_fit(
    config: VocabularyFitConfig, corpus: Path, vocabulary: Path, output: Path
) -> dict[str, Any]:
    """Measure how a vocabulary fits the pretrain split of a corpus that it was not trained on;
    write fit.json into `output` and return it: rates of unknown words and of tokens per word, those
    of the vocabulary's own corpus, and warnings.
    """
    started = time.monotonic()
    sample = ReviewSample(corpus, "pretrain", config.reviews)
    file = vocabulary / "tokenizer.json"
    if not file.exists():
        raise UserError(f"no {file}; give the folder that model.vocabulary wrote", "vocabulary")
    new = measure_fit(Tokenizer.from_file(str(file)), sample)
    result: dict[str, Any] = {**new, "warnings": []}
    # a published vocabulary was trained on no corpus of ours, and has none
    report = vocabulary / "vocabulary.json"
    first = (
        json.loads(report.read_text(encoding="utf-8")).get("fit", {}) if report.is_file() else {}
    )
    if first.get("words") and new["words"]:
        unknown_rose = new["unknown_rate"] - first["unknown_rate"]
        tokens_rose = new["tokens_per_word"] / first["tokens_per_word"] - 1
        result["first"] = first
        result["rose"] = {
            "unknown_rate": round(unknown_rose, 6),
            "tokens_per_word": round(tokens_rose, 4),
        }
        advice = "the vocabulary fits this dump worse: consider a whole run over all dumps"
        if unknown_rose > config.unknown_rate:
            result["warnings"].append(
                f"{new['unknown_rate']:.2%} of the words are unknown, {first['unknown_rate']:.2%} "
                f"of the first dump's were (limit: {config.unknown_rate:.2%} more); {advice}"
            )
        if tokens_rose > config.tokens_per_word:
            result["warnings"].append(
                f"{new['tokens_per_word']:.3f} tokens per word, {first['tokens_per_word']:.3f} in "
                f"the first dump (limit: {config.tokens_per_word:.0%} more); {advice}"
            )
    result |= {"reviews": sample.reviews, "seconds": round(time.monotonic() - started, 3)}
    output.mkdir(parents=True, exist_ok=True)
    write_json(output / "fit.json", result)
    return result
