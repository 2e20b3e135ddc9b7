"""Renders the README.md of an exported model: its purpose, data, training curve and lineage."""

import json
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from model.presets import Preset
from model.pretraining.input.sequences import Shards

ROWS = 10  # of the curve
LINEAGE = ("vocabulary", "shards", "replay", "code", "origin")

_ROLES = {
    "discriminator": (
        "ElectraForPreTraining",
        "Tells which tokens of a text were replaced. Fine-tune this one "
        "(AutoModelForSequenceClassification, …).",
    ),
    "generator": (
        "ElectraForMaskedLM",
        "Fills in masked tokens; small, it was trained to challenge the discriminator.",
    ),
    "encoder": (
        "ElectraForMaskedLM",
        "A masked language model, the control ELECTRA is compared with at equal FLOPs.",
    ),
}
_CURVE = ("generator_loss", "discriminator_loss", "mlm_loss", "nsp_loss")
_SPREAD = tuple(
    f"{trunk}_{name}"
    for trunk in ("discriminator", "encoder")
    for name in ("effective_rank", "mean_cosine")
)
"""Of the encoder's states: whether they have collapsed (collapse.py)."""


def render_model_card(
    role: str,
    preset: Preset,
    shards: Shards,
    result: dict[str, Any],
    metrics: list[dict[str, float]],
    identity: dict[str, Any],
) -> str:
    """Return the card as Markdown."""
    head, purpose = _ROLES[role]
    ratio = float(Fraction(identity.get("replay_ratio", "0")))
    epochs = result["tokens"] * (1 - ratio) / max(shards.tokens, 1)
    lines = [
        *("---", "library_name: transformers", "tags: [electra, reviews]", "---", ""),
        f"# ELECTRA {role}, preset {preset.name}",
        "",
        f"{purpose} `{head}.from_pretrained` and `AutoTokenizer.from_pretrained` load it.",
        *("", "## Data", ""),
        f"{shards.sequences:,} packed sequences of at most {shards.max_length} tokens, "
        f"{shards.tokens:,} tokens; "
        + (
            f"the last {preset.pretraining.long_steps:,} steps had the same reviews in sequences "
            f"of {result['trained_length']}; "
            if identity.get("long_shards")
            else ""
        )
        + f"a vocabulary of {shards.vocabulary_size:,} entries. "
        "Trained on the corpus's pretrain split only."
        + (
            f" Of all sequences a share of {ratio} was replayed from earlier dumps."
            if ratio
            else ""
        ),
        *("", "## Training", ""),
        f"{result['steps']:,} steps, {result['sequences']:,} sequences, "
        f"{result['tokens']:,} tokens ({epochs:.2f} epochs), "
        f"{result['flops']:.3e} FLOPs by the published count "
        f"({result['matrix_flops']:.3e} in matrix products), "
        f"{result['seconds']:,.0f} seconds on {result['device']} in {result['precision']}.",
        "",
        *_describe_choice(result),
        *_render_curve(metrics, _CURVE, "Training loss"),
        *_render_curve(
            metrics,
            [f"validation_{name}" for name in (*_CURVE, "discriminator_auc", *_SPREAD)],
            "On the dev split",
        ),
        *_render_curve(metrics, ["probe_accuracy"], "Linear probe of polarity, on dev reviews"),
        *("## Lineage", ""),
        *(f"- {name}: `{identity[name]}`" for name in LINEAGE if identity.get(name)),
        *("", "## Settings", "", "```json"),
        json.dumps(
            {
                "architecture": asdict(preset.architecture),
                "pretraining": asdict(preset.pretraining),
                **({"adaptation": asdict(preset.adaptation)} if identity.get("origin") else {}),
            },
            indent=1,
        ),
        *("```", ""),
    ]
    return "\n".join(lines)


def _describe_choice(result: dict[str, Any]) -> list[str]:
    """Return which state these weights are, where a probe chose among several."""
    if "written_step" not in result:
        return []
    step, origin = result["written_step"], result["probe_origin_accuracy"]
    if step == 0:
        return [
            "By the probe no state of this training was better than the encoder it began with "
            f"({origin:.1%}): the encoder here is that one, unchanged.",
            "",
        ]
    return [
        f"The weights are those of step {step:,}, the best by the probe: "
        f"{result['probe_best_accuracy']:.1%}, the encoder it began with {origin:.1%}.",
        "",
    ]


def _render_curve(
    metrics: list[dict[str, float]], names: list[str] | tuple[str, ...], title: str
) -> list[str]:
    """Return a table of about ten steps, the last one included."""
    held = [line for line in metrics if any(name in line for name in names)]
    columns = [name for name in names if held and name in held[-1]]
    if not columns:
        return []
    step = max(1, len(held) // ROWS)
    chosen = held[::-step][::-1]
    header = " | ".join(name.removeprefix("validation_").replace("_", " ") for name in columns)
    rows = [
        "| "
        + " | ".join([f"{line['step']:,}", *(_format_cell(line, name) for name in columns)])
        + " |"
        for line in chosen
    ]
    return [f"{title}:", "", f"| step | {header} |", "|---" * (len(columns) + 1) + "|", *rows, ""]


def _format_cell(line: dict[str, float], name: str) -> str:
    return f"{line[name]:.4f}" if name in line else "–"
