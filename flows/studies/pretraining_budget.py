"""Counts the steps in which one pre-training costs as much as another."""

import json
from pathlib import Path

from flows.runner.store import Stage, Store
from flows.stages.pretraining import locate_shards, resolve_preset
from model.presets import Preset, apply_settings


def count_equal_flops(store: Store, own: Stage, other: Stage, device: str) -> int:
    """Return the steps in which `own` computes as many matrix products as `other` on this kind of
    device.
    """
    mine = resolve_preset(own)
    a_step = count_flops(mine, find_shards(store, own), device) / mine.pretraining.steps
    theirs = count_flops(resolve_steps(other), find_shards(store, other), device)
    return max(1, round(theirs / a_step))


def count_equal_tokens(store: Store, own: Stage, other: Stage) -> int:
    """Return the steps in which `own` sees as many tokens as `other`: its shards may be filled
    less.
    """
    mine, theirs = resolve_preset(own).pretraining, resolve_steps(other).pretraining
    tokens = theirs.steps * theirs.batch * count_tokens_per_sequence(find_shards(store, other))
    return max(1, round(tokens / (mine.batch * count_tokens_per_sequence(find_shards(store, own)))))


def find_shards(store: Store, pretraining: Stage) -> Path:
    return Path(locate_shards(store, pretraining.inputs["shards"]))


def resolve_steps(pretraining: Stage) -> Preset:
    """Return the preset of a pre-training with the steps that it says itself."""

    preset, steps = resolve_preset(pretraining), pretraining.parameters["steps"]
    return apply_settings(preset, {"steps": str(steps)}) if steps else preset


def count_flops(preset: Preset, shards: Path, device: str) -> float:
    """Return the matrix products of a whole pre-training."""
    from model.device import expect_document_attention
    from model.pretraining.assembly import estimate_sequence_flops
    from model.pretraining.input.sequences import Shards

    config = preset.pretraining
    within_documents = expect_document_attention(device, config.precision)
    sequence = estimate_sequence_flops(preset, Shards.open(shards), within_documents)
    return sequence * config.steps * config.batch


def count_tokens_per_sequence(shards: Path) -> float:
    about = json.loads((shards / "shards.json").read_text())
    return float(about["tokens"] / about["sequences"])
