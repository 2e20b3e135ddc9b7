"""Whether a vocabulary still fits: python -m model.vocabulary_fit --corpus NEW --vocabulary DIR --output DIR

A new dump gets the vocabulary of the first one, or its shards could not go into the same training. Where it has many
words the vocabulary does not know, or cuts them into many more pieces, that is told: then a new vocabulary, and with it
a model trained anew, would be better. Measured on the new corpus's pretrain split and compared with the dev split of
the first corpus: the vocabulary was trained on neither.
"""

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from model import vocabulary_report
from model.command import UserMistake, main
from model.json_file import write_json
from model.vocabulary import DEV_REVIEWS, Sample


def run(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser("model.vocabulary_fit", description="How well a vocabulary fits another corpus.")
    parser.add_argument("--corpus", type=Path, required=True, metavar="DIR", help="what corpus_job made of a new dump")
    parser.add_argument("--vocabulary", type=Path, required=True, metavar="DIR", help="what model.vocabulary wrote")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="where fit.json goes")
    parser.add_argument("--split", default="pretrain", help="side of the corpus (default: pretrain)")
    parser.add_argument("--reviews", type=int, default=DEV_REVIEWS, help="measure about so many (default: 20,000)")
    parser.add_argument("--unknown_rate", type=float, default=0.005, help="warn when it rose by more (default: 0.005)")
    parser.add_argument(
        "--tokens_per_word", type=float, default=0.1, help="warn when they rose by more than this share (default: 0.1)"
    )
    options = parser.parse_args(argv)
    started = time.monotonic()
    sample = Sample(options.corpus, options.split, options.reviews)
    [measured] = vocabulary_report.compare({"this": read(options.vocabulary / "tokenizer.json")}, sample)
    result = describe(measured, first_fit(options.vocabulary), options.unknown_rate, options.tokens_per_word)
    result |= {"reviews": sample.reviews, "seconds": round(time.monotonic() - started, 3)}
    options.output.mkdir(parents=True, exist_ok=True)
    write_json(options.output / "fit.json", result)
    return result


def read(file: Path) -> Tokenizer:
    if not file.exists():
        raise UserMistake(f"--vocabulary: no {file}; give the folder that model.vocabulary wrote")
    return Tokenizer.from_file(str(file))


def first_fit(vocabulary: Path) -> dict[str, Any]:
    """As it was measured on the dev split of the corpus it was made for; nothing where that had no word."""
    rows = json.loads((vocabulary / "vocabulary.json").read_text()).get("fit", [])
    return next((row for row in rows if row["vocabulary"] == "this" and row["words"]), {})


def describe(
    new: Mapping[str, Any], first: Mapping[str, Any], unknown_limit: float, tokens_limit: float
) -> dict[str, Any]:
    """The two measures now and then, what they rose by, and a line for each that rose too far."""
    names = ("words", "unknown_rate", "tokens_per_word")
    result: dict[str, Any] = {name: new[name] for name in names} | {"warnings": []}
    if not first or not new["words"]:
        return result
    unknown_rose = new["unknown_rate"] - first["unknown_rate"]
    tokens_rose = new["tokens_per_word"] / first["tokens_per_word"] - 1
    result["first"] = {name: first[name] for name in names}
    result["rose"] = {"unknown_rate": round(unknown_rose, 6), "tokens_per_word": round(tokens_rose, 4)}
    advice = "the vocabulary fits this dump worse: consider a whole run over all dumps"
    if unknown_rose > unknown_limit:
        told = (
            f"{new['unknown_rate']:.2%} of the words are unknown, {first['unknown_rate']:.2%} of the first dump's were"
        )
        result["warnings"].append(f"{told} (limit: {unknown_limit:.2%} more); {advice}")
    if tokens_rose > tokens_limit:
        told = f"{new['tokens_per_word']:.3f} tokens per word, {first['tokens_per_word']:.3f} in the first dump"
        result["warnings"].append(f"{told} (limit: {tokens_limit:.0%} more); {advice}")
    return result


if __name__ == "__main__":
    main(run)
