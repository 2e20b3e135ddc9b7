"""Writes what a run leaves: model folders, result.json, and runs in MLflow."""

import json
from collections.abc import Mapping
from typing import Any

from safetensors.torch import save_file

from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.beam_jobs.core.nesting import find_json, read_json
from amazon_electra.model.encoders import config as encoder_config
from amazon_electra.model.encoders import export
from amazon_electra.model.encoders.known import UNKNOWN
from amazon_electra.model.encoders.vocabulary import find_special
from amazon_electra.model.encoders.weight_mapping import map_names
from amazon_electra.model.pretraining.input.sequences import Shards
from amazon_electra.model.pretraining.loop import Training
from amazon_electra.model.pretraining.network.initial_weights import Origin
from amazon_electra.model.pretraining.objectives import find_objective
from amazon_electra.model.pretraining.validation import describe_collapse
from amazon_electra.model.recipes import Recipe
from amazon_electra.model.report.document import render_template
from amazon_electra.model.tracking.metrics_log import read_metrics

MEASURES = ("loss", "auc", "accuracy")
"""Parts of the names of what result.json has of the log."""


def write_outputs(
    training: Training, recipe: Recipe, shards: Shards, origin: Origin | None = None
) -> dict[str, Any]:
    """Write model folders and result.json; return the result with `encoder`, the one to use."""
    model = training.model
    result = summarize_run(training)
    if training.loaded:
        training.loaded.average()
    collapse = describe_collapse(training.totals.step, result)
    result["warnings"] = [collapse] if collapse else []
    has_generator = find_objective(model.config.objective).has_generator
    names = [model.trunk_name, *(["generator"] if has_generator else [])]
    folders = {name: str(training.folder / name) for name in names}
    if training.device.is_rank0:
        for name in names:
            _write_network(training, recipe, shards, result, origin, name)
    result |= {"encoder": folders[model.trunk_name], **folders}
    if training.device.is_rank0:
        write_json(training.folder / "result.json", result)
    return result


def summarize_run(training: Training) -> dict[str, Any]:
    totals, last = training.totals, dict[str, float]()
    for line in read_metrics(training.folder):
        last |= {n: v for n, v in line.items() if any(part in n for part in MEASURES)}
    return {
        "steps": totals.step,
        "sequences": totals.sequences,
        "tokens": totals.tokens,
        "matrix_flops": totals.matrix_flops,
        **last,
        "seconds": round(totals.seconds, 3),
        "cpu_seconds": round(totals.cpu_seconds, 3),
        "tokens_per_second": round(totals.tokens / max(totals.seconds, 1e-9)),
        "peak_memory_mb": round(training.device.measure_memory_mb()),
        "trained_length": training.trained_length,
        "parameters": sum(parameter.numel() for parameter in training.model.parameters()),
        "device": training.device.kind,
        "precision": "bf16" if training.device.bf16 else "fp32",
    }


def _write_network(
    training: Training,
    recipe: Recipe,
    shards: Shards,
    result: dict[str, Any],
    origin: Origin | None,
    trunk: str,
) -> None:
    """Write the folder of one network, called by our name of its trunk."""
    model, shape, folder = training.model, recipe.architecture, training.folder / trunk
    card = _render_card(training, recipe, shards, result, trunk)
    if model.module is not None:
        changed = {encoder_config.TRAINED_LENGTH: training.trained_length, **model.changed_config}
        with export.write_folder(folder, shards.vocabulary, card) as temporary:
            model.module.save_pretrained(temporary)
            file = temporary / "config.json"
            write_json(file, read_json(file) | changed)
        return
    role: encoder_config.Role = "generator"
    published: dict[str, Any] = {}
    if trunk == model.trunk_name:
        role = find_objective(model.config.objective).trunk_role
        published = find_json(origin.main / "config.json") if origin else {}
    else:
        shape = shape.derive_generator()
    # how the weights were drawn that this training, or the loaded ones', began with
    drawn = None if origin else encoder_config.describe_start(recipe, trunk)
    config = encoder_config.build_transformers_config(
        role,
        shape,
        shards.vocabulary_size,
        training.trained_length,
        find_special(shards.vocabulary, "pad"),
        published.get(encoder_config.START, drawn),
    )
    if pooling := published.get(encoder_config.POOLING):
        config[encoder_config.POOLING] = pooling
    mapping = map_names(role, shape.layers, shape.embedding != shape.hidden, trunk)
    tensors = export.convert_to_transformers(dict(model.named_parameters()), mapping)
    if not (recipe.pretraining.has_segments or training.identity["origin"]):
        export.copy_type_row(tensors)
    with export.write_folder(folder, shards.vocabulary, card) as temporary:
        write_json(temporary / "config.json", config)
        save_file(tensors, temporary / "model.safetensors", metadata={"format": "pt"})


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
"""Fields of the start's origin.json in the lineage, titles, and whether shown if unknown."""


def _render_card(
    training: Training, recipe: Recipe, shards: Shards, result: dict[str, Any], role: str
) -> str:
    ours = "ElectraForPreTraining" if role == "discriminator" else "ElectraForMaskedLM"
    module, is_adapted = training.model.module, bool(training.identity.get("origin"))
    settings = {
        "architecture": recipe.architecture.model_dump(),
        "pretraining": recipe.pretraining.model_dump(),
        **({"adaptation": recipe.adaptation.model_dump()} if is_adapted else {}),
    }
    return render_template(
        "encoder_card.md.j2",
        front_matter=render_front_matter(training.start),
        role=role,
        recipe=recipe,
        loaded_by=ours if module is None else type(module).__name__,
        shards=shards,
        start=training.start,
        result=result,
        epochs=result["tokens"] / max(shards.tokens, 1),
        lineage=LINEAGE,
        identity=training.identity,
        origin_fields=ORIGIN_FIELDS,
        unknown=UNKNOWN,
        settings=json.dumps(settings, indent=1),
    )


def render_front_matter(start: Mapping[str, Any]) -> str:
    """Return the card's YAML: licence and data of the encoder that training began with."""
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
