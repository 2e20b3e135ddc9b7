"""Chooses which weights of a run that began with loaded ones are written as its model."""

import sys
from typing import Any

import torch
from safetensors import SafetensorError

from beam_jobs.job.errors import UserError
from model.pretraining import checkpoint
from model.pretraining.loop import Training
from model.pretraining.network.masked_prediction import PretrainingModel


def settle_weights(training: Training) -> dict[str, Any]:
    """Put the weights that are to be written into the model; return what result.json says of them.

    With a probe that chooses it is the latest of the best states by it, the loaded one included;
    else the last. The trunk is averaged with the loaded one as the probe saw it.
    """
    if training.anchor is None:
        return {}
    totals, adaptation, choice = training.totals, training.adaptation, training.choice
    is_chosen = training.probe is not None and not adaptation.write_last
    step = totals.best_step if is_chosen else totals.step
    if training.device.is_needed:
        _load_step(training, step)
    training.anchor.average(adaptation.origin_average if step else 1.0)
    if training.probe is None:
        return {}
    if training.device.is_rank0:
        print(choice.describe(step, adaptation), file=sys.stderr)
    return {
        "probe_origin_accuracy": choice.origin_accuracy,
        "probe_last_accuracy": choice.last_accuracy,
        "probe_best_accuracy": choice.best_accuracy,
        "probe_written_accuracy": choice.chosen_accuracy,
        "written_step": step,
        "written_by_probe": is_chosen,
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
