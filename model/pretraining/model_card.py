"""Renders the README.md of an exported model: its purpose, data, training curve and lineage."""

import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from amazon_electra.beam_jobs.core.terminal import escape_controls
from amazon_electra.model.encoders.card import UNKNOWN
from amazon_electra.model.pretraining.input.sequences import Shards
from amazon_electra.model.pretraining.objectives import find_objective
from amazon_electra.model.recipes import Recipe

ROWS = 10  # of the curve
LINEAGE = ("vocabulary", "shards", "replay", "code", "origin")

FINE_TUNE = "Fine-tune this one (AutoModelForSequenceClassification, …)."
ORIGIN_FIELDS = {
    "name": "name",
    "place": "place",
    "revision": "revision",
    "version": "version",
    "sha256": "SHA-256",
    "license": "licence",
    "training_data": "training data",
    "languages": "languages",
}
"""What the lineage says of the encoder that training began with (origin.json)."""
ALWAYS_TOLD = ("name", "license", "training_data")

_ROLES = {
    "discriminator": (
        "ElectraForPreTraining",
        f"Finds which tokens of a text were replaced. {FINE_TUNE}",
    ),
    "generator": (
        "ElectraForMaskedLM",
        "Fills in masked tokens; small, it was trained to challenge the discriminator.",
    ),
    "encoder": (
        "ElectraForMaskedLM",
        f"A masked language model. {FINE_TUNE}",
    ),
}
_SPREAD = tuple(
    f"{trunk}_{name}"
    for trunk in ("discriminator", "encoder")
    for name in ("effective_rank", "mean_cosine")
)
"""Of the encoder's states: whether they have collapsed (collapse.py)."""


def render_model_card(
    role: str,
    recipe: Recipe,
    shards: Shards,
    result: dict[str, Any],
    metrics: list[dict[str, float]],
    identity: dict[str, Any],
    start: Mapping[str, Any],
    module: str | None = None,
) -> str:
    """Return the card as Markdown; `module` is the class that loads it where it is none of ours;
    `start` is what is known of the weights it began with
    (model/encoders/card.py), empty where they were random.
    """
    head, purpose = _ROLES[role]
    losses = find_objective(recipe.pretraining.objective).losses
    head = module or head
    ratio = float(Fraction(identity.get("replay_ratio", "0")))
    epochs = result["tokens"] * (1 - ratio) / max(shards.tokens, 1)
    origin = start.get("name", "")
    if origin and role == "encoder":
        purpose = f"A masked language model, {origin} adapted to other text. {FINE_TUNE}"
    lines = [
        *render_front_matter(start),
        f"# {origin}, adapted: {role}" if origin else f"# ELECTRA {role}, recipe {recipe.name}",
        "",
        f"{purpose} `{head}.from_pretrained` and `AutoTokenizer.from_pretrained` load it.",
        *("", "## Data", ""),
        f"{shards.sequences:,} packed sequences of at most {shards.max_length} tokens, "
        f"{shards.tokens:,} tokens; "
        f"a vocabulary of {shards.vocabulary_size:,} entries. {_describe_text(shards, ratio)}",
        *(["", _describe_start(start)] if start else []),
        *("", "## Training", ""),
        f"{result['steps']:,} steps, {result['sequences']:,} sequences, "
        f"{result['tokens']:,} tokens ({epochs:.2f} epochs), "
        f"{result['flops']:.3e} FLOPs by the published count "
        f"({result['matrix_flops']:.3e} in matrix products), "
        f"{result['seconds']:,.0f} seconds on {result['device']} in {result['precision']}.",
        "",
        *_describe_choice(result),
        *_render_curve(metrics, losses, "Training loss"),
        *_render_curve(
            metrics,
            [f"validation_{name}" for name in (*losses, "discriminator_auc", *_SPREAD)],
            "On the dev split",
        ),
        *_render_curve(metrics, ["probe_accuracy"], "Linear probe of polarity, on dev reviews"),
        *("## Lineage", ""),
        *(f"- {name}: `{identity[name]}`" for name in LINEAGE if identity.get(name)),
        *(
            f"- origin's {title}: {start.get(name) or UNKNOWN}"
            for name, title in ORIGIN_FIELDS.items()
            if origin and (name in ALWAYS_TOLD or start.get(name))
        ),
        *("", "## Settings", ""),
        *((f"Of the recipe {recipe.name} where nothing else is said.", "") if origin else ()),
        "```json",
        json.dumps(
            {
                "architecture": recipe.architecture.model_dump(),
                "pretraining": recipe.pretraining.model_dump(),
                **(
                    {"adaptation": recipe.adaptation.model_dump()} if identity.get("origin") else {}
                ),
            },
            indent=1,
        ),
        *("```", ""),
    ]
    return escape_controls("\n".join(lines))


def render_front_matter(start: Mapping[str, Any]) -> list[str]:
    """Return the card's YAML: the licence and data of the encoder that training began with, where
    they are known, so that who goes on from here finds them too.
    """
    import yaml

    metadata: dict[str, Any] = {
        "library_name": "transformers",
        "tags": [*dict.fromkeys([start.get("kind") or "electra", "reviews"])],
    }
    if start.get("license", UNKNOWN) != UNKNOWN:
        metadata["license"] = start["license"]
    if start.get("revision"):
        metadata["base_model"] = start["name"]
    if start.get("training_data", UNKNOWN) != UNKNOWN:
        metadata["datasets"] = start["training_data"].split(", ")
    return [
        "---",
        yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True).rstrip(),
        "---",
        "",
    ]


def _describe_text(shards: Shards, ratio: float) -> str:
    """Return what text the shards hold."""
    sources = shards.read_sources() or {}
    is_general = sources.get("corpus", "reviews") == ""
    text = (
        "It is text that is not reviews."
        if is_general
        else "They are of the corpus's pretrain split only."
    )
    mixed = f" Of all sequences a share of {ratio} was replayed from other shards."
    return f"{text}{mixed if ratio else ''}"


def _describe_start(start: Mapping[str, Any]) -> str:
    """Return what the encoder that training began with has seen, as far as its card says."""
    if not start.get("name"):
        return f"Training went on from an earlier one of ours, `{start['through']}`."
    data = start.get("training_data") or UNKNOWN
    seen = "is unknown" if data == UNKNOWN else f"is described as “{data}”"
    through = f", by way of `{start['through']}`" if "through" in start else ""
    return (
        f"Training began with {start['name']}{through}. What that one was trained on before "
        f"{seen}, and nobody here knows whether texts of an evaluation were among it."
    )


def _describe_choice(result: dict[str, Any]) -> list[str]:
    """Return which weights these are, where a probe compared them with the loaded ones."""
    if "written_step" not in result:
        return []
    step, origin = result["written_step"], result["probe_origin_accuracy"]
    last = result["probe_last_accuracy"]
    if step == 0:
        return [
            f"By the probe this training made the encoder it began with worse ({last:.1%} after "
            f"{origin:.1%}): the encoder here is that one, unchanged.",
            "",
        ]
    return [f"The probe has {last:.1%}, the encoder it began with {origin:.1%}.", ""]


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
    rows = []
    for line in chosen:
        cells = [f"{line[name]:.4f}" if name in line else "–" for name in columns]
        rows.append("| " + " | ".join([f"{line['step']:,}", *cells]) + " |")
    return [f"{title}:", "", f"| step | {header} |", "|---" * (len(columns) + 1) + "|", *rows, ""]
