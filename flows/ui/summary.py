"""A stage's result in a line."""

from collections.abc import Mapping
from typing import Any

from flows.runner.stage_runner import flatten_numbers

Number = float | int

HEADLINES = {
    "dump": ["files", "bytes"],
    "corpus": ["read", "kept", "sentences"],
    "origin": ["layers", "hidden", "parameters", "vocabulary_size"],
    "vocabulary": ["size", "reviews"],
    "vocabulary-fit": ["words", "unknown_rate", "tokens_per_word"],
    "shards": ["sequences", "tokens", "fill"],
    "dev-shards": ["sequences", "tokens"],
    "pretraining": ["steps", "tokens", "mlm_loss", "generator_loss", "discriminator_loss"],
    "finetuning": ["n_train", "learning_rate", "dev.accuracy", "dev.macro_f1"],
    "evaluation": ["n", "metrics.accuracy.value", "metrics.macro_f1.value"],
}
"""The numbers of each stage that a line has room for; the table of counts has all of them."""

KEPT_ORIGIN = "the loaded weights are kept: by the probe training made them worse"


def summarize_manifest(manifest: Mapping[str, Any]) -> str:
    """Return the headline numbers of a stage, and how many records were dropped in all."""
    numbers = flatten_numbers(manifest["result"])
    headlines = HEADLINES.get(manifest["stage"], list(numbers)[:4])
    parts = [
        f"{format_number(numbers[n])} {n.removeprefix('metrics.').removesuffix('.value')}"
        for n in headlines
        if n in numbers
    ]
    dropped = [value for name, value in numbers.items() if name.startswith("dropped.")]
    parts += [f"{sum(dropped):,} dropped"] if dropped else []
    parts += [KEPT_ORIGIN] if numbers.get("written_step") == 0 else []
    return ", ".join(parts)


def format_number(value: Number) -> str:
    """Return an integer with separators of thousands, another number with four digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
