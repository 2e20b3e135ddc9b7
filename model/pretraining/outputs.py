"""Writes what a run leaves: model folders, result.json, TensorBoard files, and runs in MLflow."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor

from beam_jobs.core.errors import UserError
from beam_jobs.core.files import write_json
from model.encoders import config as encoder_config
from model.encoders import export
from model.encoders.names import map_names
from model.pretraining import loop, model_card
from model.pretraining.budget import describe_small_budget
from model.pretraining.input.sequences import Shards
from model.pretraining.network.electra import Electra
from model.pretraining.network.initial_weights import Origin
from model.pretraining.network.transformers_mlm import TransformersMlm
from model.pretraining.validation import describe_collapse
from model.recipes import Recipe
from model.tracking.metrics_log import read_metrics

_ROLES: Mapping[str, encoder_config.Role] = {"discriminator": "discriminator"}
"""Trunk → role; all others predict masked tokens."""
MEASURES = ("loss", "auc", "accuracy", "effective_rank", "mean_cosine")
"""Parts of the names of what result.json has of the log."""


def write_config(output: Path, recipe: Recipe, shards: Shards, more: dict[str, Any]) -> None:
    """Write the resolved configuration beside what it produces."""
    resolved = (
        recipe.describe()
        | {"shards": str(shards.folder), "shards_fingerprint": shards.fingerprint}
        | more
    )
    (output / "config.json").write_text(json.dumps(resolved, indent=2) + "\n")


def write_outputs(
    training: loop.Training, recipe: Recipe, shards: Shards, origin: Origin | None = None
) -> dict[str, Any]:
    """Write the model folders and result.json; return the result. `origin`: the loaded weights."""
    result = summarize_run(training)
    if training.anchor:
        result |= training.anchor.settle(
            training.model,
            training.device,
            training.adaptation,
            training.probe,
            training.totals.step,
        )
        if result.get("written_step") == 0 and training.validation:  # not what was measured last
            result |= training.validation(training.model, training.device)
    result["warnings"] = list_warnings(training, recipe, shards, result, origin)
    if training.device.is_rank0:
        result |= write_models(training, recipe, shards, result, origin)
        write_json(training.folder / "result.json", result)
    return result


def summarize_run(training: loop.Training) -> dict[str, Any]:
    """Return the totals of the run and the last measures in its log."""
    totals = training.totals
    last: dict[str, float] = {}
    for line in read_metrics(training.folder):
        last |= {n: v for n, v in line.items() if any(part in n for part in MEASURES)}
    peak = training.device.measure_peak_flops() * training.device.world_size
    utilization = totals.matrix_flops / max(totals.seconds, 1e-9) / peak
    has_peak = math.isfinite(peak) and training.device.kind != "cpu"  # a CPU's is measured
    return {
        "steps": totals.step,
        "sequences": totals.sequences,
        "tokens": totals.tokens,
        "flops": totals.flops,
        "matrix_flops": totals.matrix_flops,
        **last,
        "seconds": round(totals.seconds, 3),
        "cpu_seconds": round(totals.cpu_seconds, 3),
        "measuring_cpu_seconds": round(totals.measuring_cpu_seconds, 3),
        "tokens_per_cpu_second": round(totals.tokens / max(totals.cpu_seconds, 1e-9)),
        "tokens_per_second": round(totals.tokens / max(totals.seconds, 1e-9)),
        **({"flops_utilization": round(utilization, 4)} if has_peak else {}),
        **({"joules": round(totals.joules)} if totals.joules else {}),
        "peak_memory_mb": round(training.device.measure_memory_mb()),
        "trained_length": training.trained_length,
        "parameters": sum(parameter.numel() for parameter in training.model.parameters()),
        "device": training.device.kind,
        "precision": "bf16" if training.device.bf16 else "fp32",
    }


def list_warnings(
    training: loop.Training,
    recipe: Recipe,
    shards: Shards,
    result: Mapping[str, Any],
    origin: Origin | None,
) -> list[str]:
    """Return what a person should know of the finished run: whether it was too short to pay,
    and whether the discriminator is a constant by the last validation.
    """
    warnings = (
        warn_of_small_budget(training, recipe, shards, origin),
        describe_collapse(training.totals.step, result),
    )
    return [warning for warning in warnings if warning]


def warn_of_small_budget(
    training: loop.Training, recipe: Recipe, shards: Shards, origin: Origin | None
) -> str | None:
    """Return a warning if so few steps have never paid; none where weights were loaded, or where
    nobody knows how many steps a time has.
    """
    if origin or training.budget_seconds is not None:
        return None
    return describe_small_budget(recipe, shards.max_length)


def write_models(
    training: loop.Training,
    recipe: Recipe,
    shards: Shards,
    result: dict[str, Any],
    origin: Origin | None = None,
) -> dict[str, str]:
    """Write one folder per network; return their paths, `encoder` is the one to fine-tune."""
    write = partial(_write_network, training, recipe, shards, result, origin)
    if isinstance(training.model, TransformersMlm):
        return {"encoder": _write_module(training, training.model, recipe, shards, result)}
    if not isinstance(training.model, Electra):
        return {"encoder": write("encoder")}
    discriminator, generator = write("discriminator"), write("generator")
    return {"encoder": discriminator, "discriminator": discriminator, "generator": generator}


def _write_module(
    training: loop.Training,
    model: TransformersMlm,
    recipe: Recipe,
    shards: Shards,
    result: dict[str, Any],
) -> str:
    """Write the folder of transformers' own module, with the dropout it was published with."""
    config = {encoder_config.TRAINED_LENGTH: training.trained_length, **model.published_dropout}
    card = _render_card("encoder", training, recipe, shards, result, type(model.network).__name__)
    folder = training.folder / "encoder"
    return str(export.write_module_folder(folder, model.network, config, shards.vocabulary, card))


def _render_card(
    trunk: str,
    training: loop.Training,
    recipe: Recipe,
    shards: Shards,
    result: dict[str, Any],
    head: str | None = None,
) -> str:
    return model_card.render_model_card(
        trunk,
        recipe,
        shards,
        result,
        read_metrics(training.folder),
        training.identity,
        training.start,
        head,
    )


def _write_network(
    training: loop.Training,
    recipe: Recipe,
    shards: Shards,
    result: dict[str, Any],
    origin: Origin | None,
    trunk: str,
) -> str:
    shape, role = recipe.architecture, _ROLES.get(trunk, "generator")
    if trunk == "generator":
        shape = shape.derive_generator()
    mapping = map_names(role, shape.layers, shape.embedding != shape.hidden, trunk)
    config = encoder_config.build_transformers_config(
        role,
        shape,
        shards.vocabulary_size,
        training.trained_length,
        encoder_config.read_padding_id(shards.vocabulary),
        _describe_start(recipe, trunk, origin),
    )
    weights: dict[str, Tensor] = dict(training.model.named_parameters())
    tensors = export.convert_to_transformers(weights, mapping)
    if not (recipe.pretraining.has_segments or training.identity["origin"]):
        export.copy_type_row(tensors)
    card = _render_card(trunk, training, recipe, shards, result)
    return str(
        export.write_model_folder(training.folder / trunk, config, tensors, shards.vocabulary, card)
    )


def _describe_start(recipe: Recipe, trunk: str, origin: Origin | None) -> dict[str, Any] | None:
    """Return how the start weights of a network are drawn: where some were loaded, those that their
    own training began with, if it says so.
    """
    if origin is None:
        return encoder_config.describe_start(recipe, trunk)
    return None if trunk == "generator" else origin.read_start()


def write_tensorboard(folder: Path) -> None:
    """Copy the log into TensorBoard event files in <folder>/tensorboard."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError("--tensorboard: the package tensorboard is not installed here") from None
    with SummaryWriter(str(folder / "tensorboard")) as writer:
        for line in read_metrics(folder):
            for name, value in line.items():
                if name not in ("step", "time"):
                    writer.add_scalar(name, value, int(line["step"]), walltime=line["time"])


@contextmanager
def mirror_to_mlflow(training: loop.Training, recipe: Recipe) -> Iterator[None]:
    """Mirror the run inside the block in MLflow, if MLFLOW_TRACKING_URI names a server and no flow
    started the run: flows mirror what they start.
    """
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    started_by_flow = os.environ.get("AMAZON_ELECTRA_PROGRESS") == "json"
    if not uri or started_by_flow or not training.device.is_rank0 or find_spec("mlflow") is None:
        yield
        return
    from model.tracking.mlflow_run import Tracking

    parameters = {
        "recipe": recipe.name,
        **recipe.architecture.model_dump(),
        **recipe.pretraining.model_dump(),
    }
    tags = {"vocabulary": training.identity["vocabulary"], "shards": training.identity["shards"]}
    tracking = Tracking(uri)
    tracking.start(f"pre-training {recipe.name}", parameters, tags)
    status = "FAILED"
    try:
        with tracking.follow_folder("pre-training", training.folder, parameters, tags):
            yield
        status = "FINISHED"
    finally:
        tracking.finish(status)
