"""The README.md of an exported model: what it is, what it was trained on, how far it came."""

import json

from model.presets import Preset
from model.pretraining.sequences import Shards

_INTENDED = {
    "discriminator": "Tells which tokens of a text were replaced; fine-tune it (AutoModelForSequenceClassification).",
    "generator": "Fills in masked tokens; it is small and was trained to feed the discriminator.",
}


def write(role: str, preset: Preset, shards: Shards, result: dict[str, float], metrics: list[dict[str, float]]) -> str:
    head = "ElectraForPreTraining" if role == "discriminator" else "ElectraForMaskedLM"
    curve = [line for line in metrics if "loss" in line]
    shown = curve[:: max(1, len(curve) // 10)]
    rows = [
        f"| {line['step']:,} | {_cell(line, 'generator_loss')} | {_cell(line, 'discriminator_loss')} |"
        for line in shown
    ]
    return "\n".join(
        [
            "---",
            "library_name: transformers",
            "tags: [electra, reviews]",
            "---",
            f"# ELECTRA {role}, preset {preset.name}",
            "",
            f"{_INTENDED[role]} Load it with `{head}.from_pretrained` and `AutoTokenizer.from_pretrained`.",
            "",
            "## Data",
            "",
            f"{shards.sequences:,} packed sequences of at most {shards.max_length} tokens, {shards.tokens:,} tokens, "
            f"vocabulary of {shards.vocabulary_size:,} entries.",
            f"Vocabulary fingerprint `{shards.vocabulary_fingerprint}`, shards fingerprint `{shards.fingerprint}`.",
            "",
            "## Training",
            "",
            f"{result['steps']:,} steps, {result['sequences']:,} sequences, {result['tokens']:,} tokens, "
            f"{result['flops']:.3e} FLOPs, {result['seconds']:,.0f} seconds on {result['device']}.",
            "",
            "| step | generator loss | discriminator loss |",
            "|---|---|---|",
            *rows,
            "",
            "```json",
            json.dumps(vars(preset.pretraining), indent=1),
            "```",
            "",
        ]
    )


def _cell(line: dict[str, float], name: str) -> str:
    return f"{line[name]:.4f}" if name in line else "–"
