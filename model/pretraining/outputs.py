"""What a finished run leaves: transformers folders, result.json, TensorBoard files where asked for."""

import json
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from model import export
from model.command import UserMistake
from model.json_file import write_json
from model.metrics_log import read_metrics
from model.presets import Preset
from model.pretraining import loop, model_card
from model.pretraining.electra import Electra
from model.pretraining.sequences import Shards


def check_writable(output: Path) -> None:
    """Before anything is computed that could not be kept."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=output).close()
    except OSError as error:
        raise UserMistake(f"--output {output}: no files can be written there ({error.strerror})") from None


def write_config(output: Path, preset: Preset, shards: Shards, more: dict[str, Any]) -> None:
    """The resolved configuration, beside what it produces."""
    resolved = asdict(preset) | {"shards": str(shards.folder), "shards_fingerprint": shards.fingerprint} | more
    (output / "config.json").write_text(json.dumps(resolved, indent=2) + "\n")


def finish(training: loop.Training, preset: Preset, shards: Shards) -> dict[str, Any]:
    """Writes the model folders and result.json; returns the result."""
    result = summarize(training)
    if training.device.is_first:
        result |= write_models(training, preset, shards, result)
        write_json(training.folder / "result.json", result)
    return result


def summarize(training: loop.Training) -> dict[str, Any]:
    totals = training.totals
    last: dict[str, float] = {}
    for line in read_metrics(training.folder):
        last |= {name: value for name, value in line.items() if "loss" in name or "auc" in name or "accuracy" in name}
    return {
        "steps": totals.step,
        "sequences": totals.sequences,
        "tokens": totals.tokens,
        "flops": totals.flops,
        **last,
        "seconds": round(totals.seconds, 3),
        "cpu_seconds": round(totals.cpu_seconds, 3),
        "tokens_per_second": round(totals.tokens / max(totals.seconds, 1e-9)),
        "parameters": sum(parameter.numel() for parameter in training.model.parameters()),
        "device": training.device.kind,
        "precision": "bf16" if training.device.bf16 else "fp32",
    }


def write_models(training: loop.Training, preset: Preset, shards: Shards, result: dict[str, Any]) -> dict[str, str]:
    """One folder per network; `encoder` is the one to fine-tune."""
    shape = preset.architecture
    if not isinstance(training.model, Electra):
        return {"encoder": _write(training, preset, shards, result, "generator", shape, "encoder")}
    discriminator = _write(training, preset, shards, result, "discriminator", shape, "discriminator")
    generator = _write(training, preset, shards, result, "generator", shape.generator(), "generator")
    return {"encoder": discriminator, "discriminator": discriminator, "generator": generator}


def _write(
    training: loop.Training,
    preset: Preset,
    shards: Shards,
    result: dict[str, Any],
    role: export.Role,
    shape: Any,
    trunk: str,
) -> str:
    mapping = export.names(role, shape.layers, shape.embedding != shape.hidden, trunk)
    config = export.transformers_config(role, shape, shards.vocabulary_size, preset.pretraining.dropout)
    tensors = export.to_transformers(dict(training.model.named_parameters()), mapping)
    card = model_card.write(trunk, preset, shards, result, read_metrics(training.folder), training.identity)
    return str(export.write_model(training.folder / trunk, config, tensors, shards.vocabulary, card))


def write_tensorboard(folder: Path) -> None:
    """The log as TensorBoard event files in <folder>/tensorboard."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserMistake("--tensorboard: the package tensorboard is not installed here") from None
    with SummaryWriter(str(folder / "tensorboard")) as writer:
        for line in read_metrics(folder):
            for name, value in line.items():
                if name not in ("step", "time"):
                    writer.add_scalar(name, value, int(line["step"]), walltime=line["time"])
