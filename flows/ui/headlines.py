"""The few numbers that sum up a stage in a line, of the terminal, the log and Prefect's pages."""

from collections.abc import Mapping
from typing import Any

from flows.runner.stage_runner import flatten_numbers

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
    "model": ["temperature", "calibration.test.after", "int8.changed"],
    "evaluation": ["n", "metrics.accuracy.value", "metrics.macro_f1.value"],
}
"""The numbers of each stage that a line has room for; the table of counts has all of them."""


def summarize_manifest(manifest: Mapping[str, Any]) -> str:
    """Return the headline numbers of a stage, and how many records were dropped in all."""
    numbers = flatten_numbers(manifest["result"])
    headlines = HEADLINES.get(manifest["stage"], list(numbers)[:4])
    parts = [
        f"{value:,} {n.removesuffix('s') if value == 1 else n}"
        if isinstance(value, int)
        else f"{value:,.4g} {n}"
        for name in headlines
        if (value := numbers.get(name)) is not None
        and (n := name.removeprefix("metrics.").removesuffix(".value"))
    ]
    dropped = [value for name, value in numbers.items() if name.startswith("dropped.")]
    parts += [f"{sum(dropped):,} dropped"] if dropped else []
    if numbers.get("written_step") == 0:
        parts.append("the loaded weights are kept: by the probe training made them worse")
    return ", ".join(parts)
