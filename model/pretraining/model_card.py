"""Renders the README.md of an exported encoder: its purpose, data, training curve and lineage."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from amazon_electra.model.encoders.card import UNKNOWN
from amazon_electra.model.pretraining.input.sequences import Shards
from amazon_electra.model.pretraining.objectives import find_objective
from amazon_electra.model.recipes import Recipe
from amazon_electra.model.report.document import render_template

ROWS = 10  # of the curve
LINEAGE = ("vocabulary", "shards", "code", "origin")
ORIGIN_FIELDS = (
    ("name", "name", True),
    ("place", "place", False),
    ("revision", "revision", False),
    ("version", "version", False),
    ("sha256", "SHA-256", False),
    ("license", "licence", True),
    ("training_data", "training data", True),
    ("amazon", "trained on Amazon's", False),
    ("languages", "languages", False),
)
"""What the lineage says of the encoder that training began with (origin.json): field, title, and
whether it is said where it is unknown.
"""


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
    `start` is what is known of the weights it began with (model/encoders/card.py), empty where they
    were random.
    """
    losses = find_objective(recipe.pretraining.objective).losses
    of_dev = [f"validation_{name}" for name in (*losses, "discriminator_auc")]
    curves = [
        build_curve(metrics, losses, "Training loss:"),
        build_curve(metrics, of_dev, "On the dev split:"),
    ]
    ours = "ElectraForPreTraining" if role == "discriminator" else "ElectraForMaskedLM"
    settings = {
        "architecture": recipe.architecture.model_dump(),
        "pretraining": recipe.pretraining.model_dump(),
        **({"adaptation": recipe.adaptation.model_dump()} if identity.get("origin") else {}),
    }
    return render_template(
        "encoder_card.md.j2",
        front_matter=render_front_matter(start),
        role=role,
        recipe=recipe,
        loaded_by=module or ours,
        shards=shards,
        is_general=(shards.read_sources() or {}).get("corpus", "reviews") == "",
        start=start,
        result=result,
        epochs=result["tokens"] / max(shards.tokens, 1),
        curves=[curve for curve in curves if curve],
        lineage=LINEAGE,
        identity=identity,
        origin_fields=ORIGIN_FIELDS,
        unknown=UNKNOWN,
        settings=json.dumps(settings, indent=1),
    )


def render_front_matter(start: Mapping[str, Any]) -> str:
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
    return str(yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)).rstrip()


def build_curve(
    metrics: list[dict[str, float]], names: Sequence[str], caption: str
) -> dict[str, Any]:
    """Return the table of about ten steps, the last one included, as `caption`, `columns` and
    `rows`; nothing of measures not taken.
    """
    held = [line for line in metrics if any(name in line for name in names)]
    columns = [name for name in names if held and name in held[-1]]
    if not columns:
        return {}
    chosen = held[:: -max(1, len(held) // ROWS)][::-1]
    titles = (name.removeprefix("validation_").replace("_", " ") for name in columns)
    rows = [
        [f"{line['step']:,}", *(f"{line[n]:.4f}" if n in line else "–" for n in columns)]
        for line in chosen
    ]
    return {"caption": caption, "columns": ["step", *titles], "rows": rows}
