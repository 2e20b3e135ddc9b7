"""Counts the steps in which one pre-training costs as much as another."""

import json
from collections.abc import Callable
from pathlib import Path

from flows.stages.pretraining import locate_shards, resolve_preset
from flows.store.store import Stage, Store
from model.presets import Preset, apply_settings


def count_equal_flops(store: Store, own: Stage, other: Stage, device: str) -> int:
    """Return the steps in which `own` computes as many matrix products as `other` on this kind of
    device.
    """
    mine = resolve_preset(own)
    a_step = count_flops(store, own, mine, device) / mine.pretraining.steps
    return max(1, round(count_flops(store, other, resolve_steps(other), device) / a_step))


def count_equal_tokens(store: Store, own: Stage, other: Stage) -> int:
    """Return the steps in which `own` sees as many tokens as `other`: its shards may be filled
    less.
    """
    mine, theirs = resolve_preset(own).pretraining, resolve_steps(other).pretraining
    tokens = (
        theirs.steps * theirs.batch * average_sequences(store, other, count_tokens_per_sequence)
    )
    a_step = mine.batch * average_sequences(store, own, count_tokens_per_sequence)
    return max(1, round(tokens / a_step))


def average_sequences(store: Store, pretraining: Stage, measure: Callable[[Path], float]) -> float:
    """Return what a sequence of a pre-training measures on average, over its own shards and those
    of which it replays a share.
    """
    ratio = pretraining.parameters.get("replay_ratio", 0.0)
    shares = {"shards": 1 - ratio, "replay": ratio}
    return sum(
        share * measure(Path(locate_shards(store, pretraining.inputs[name])))
        for name, share in shares.items()
        if share
    )


def resolve_steps(pretraining: Stage) -> Preset:
    """Return the preset of a pre-training with the steps that it says itself."""

    preset, steps = resolve_preset(pretraining), pretraining.parameters["steps"]
    return apply_settings(preset, {"steps": str(steps)}) if steps else preset


def count_flops(store: Store, pretraining: Stage, preset: Preset, device: str) -> float:
    """Return the matrix products of a whole pre-training with these settings on this device."""
    from model.device import expect_document_attention
    from model.pretraining.assembly import estimate_sequence_flops
    from model.pretraining.input.sequences import Shards

    within_documents = expect_document_attention(device, preset.pretraining.precision)

    def measure(shards: Path) -> float:
        return estimate_sequence_flops(preset, Shards.open(shards), within_documents)

    sequences = preset.pretraining.steps * preset.pretraining.batch
    return average_sequences(store, pretraining, measure) * sequences


def count_tokens_per_sequence(shards: Path) -> float:
    about = json.loads((shards / "shards.json").read_text())
    return float(about["tokens"] / about["sequences"])
