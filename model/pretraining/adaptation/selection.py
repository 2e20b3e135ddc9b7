"""Chooses which weights of a run that began with loaded ones are written as its model."""

import sys
from typing import Any

import torch
from safetensors import SafetensorError

from beam_jobs.job.errors import UserError
from model.pretraining import checkpoint
from model.pretraining.adaptation.probe import Probe
from model.pretraining.loop import Totals, Training
from model.pretraining.network.masked_prediction import PretrainingModel


def settle_weights(training: Training) -> dict[str, Any]:
    """Put the weights that are to be written into the model; return what result.json says of them.

    With a probe it is the latest of the best states by it, the loaded one included; else the last.
    The trunk is averaged with the loaded one as the probe saw it.
    """
    if training.anchor is None:
        return {}
    totals = training.totals
    step = totals.step if training.probe is None else totals.best_step
    if training.device.is_needed:
        _load_step(training, step)
    training.anchor.average(training.adaptation.origin_average if step else 1.0)
    if training.probe is None:
        return {}
    if training.device.is_rank0:
        print(_describe_choice(totals, training.probe), file=sys.stderr)
    return {
        "probe_origin_accuracy": totals.origin_probe,
        "probe_last_accuracy": totals.last_probe,
        "probe_best_accuracy": totals.best_probe,
        "probe_written_accuracy": totals.chosen_probe if step else totals.origin_probe,
        "written_step": step,
    }


def _load_step(training: Training, step: int) -> None:
    """Put the checkpoint of a step into the model; the last state is there, step 0 the anchor's."""
    if step in (0, training.totals.step):
        return
    path = checkpoint.build_path(training.writer.folder, step)
    try:
        load_weights(training.model, checkpoint.load_state(path))
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise UserError(
            f"{path}: the state chosen by the probe cannot be read ({error}); remove the folder "
            "checkpoints and run the same command again"
        ) from None


def load_weights(model: PretrainingModel, state: checkpoint.State) -> None:
    """Put the weights of a state into the model, and nothing of its optimizer."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(state.tensors[f"model.{name}"])


def _describe_choice(totals: Totals, probe: Probe) -> str:
    """Return one line that compares the states by the probe and says which one is written."""
    margin = probe.compute_margin(totals.origin_probe)
    compared = (
        f"probe on {len(probe.dev.labels):,} dev reviews: the loaded encoder "
        f"{totals.origin_probe:.1%}, the last state {totals.last_probe:.1%}"
    )
    if totals.best_step == 0:
        return (
            f"{compared}; no state beat the loaded one by more than {margin:.1%} (probe_margin): "
            "its weights are written as they were. Try a lower learning_rate or "
            "trunk_learning_rate, or more text"
        )
    best, chosen = f"{totals.best_probe:.1%}", f"{totals.chosen_probe:.1%}"
    warning = "; training on made it worse" if totals.last_probe < totals.origin_probe else ""
    return (
        f"{compared}, the best {best}; written is that of step {totals.best_step} with {chosen}, "
        f"the latest within {margin:.1%} of the best (probe_margin){warning}"
    )
