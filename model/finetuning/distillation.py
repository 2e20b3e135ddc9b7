"""Distil: a student learns from a fine-tuned teacher's soft targets (arXiv 1503.02531), as some of
its layers (DistilBERT, 1910.01108), and from hidden states and attention (TinyBERT, 1909.10351).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

from amazon_electra.beam_jobs.core.errors import UserError, require
from amazon_electra.model.config import FinetuningSettings
from amazon_electra.model.device import Device
from amazon_electra.model.finetuning import network
from amazon_electra.model.finetuning.examples import Example, Task
from amazon_electra.model.finetuning.network import predict_logits, select_inputs
from amazon_electra.model.finetuning.request import choose_layers
from amazon_electra.model.finetuning.training import TrainingSetup, compute_supervised_loss

SHAPES = ("classification", "regression", "choice")


@dataclass(frozen=True)
class Teacher:
    """A fine-tuned folder and its logits for the training examples."""

    folder: Path
    model: nn.Module
    tokenizer: Tokenizer
    logits: Tensor
    """Float32 [examples, classes], in the order of the features."""


def load_teacher(folder: Path, task: Task, examples: Sequence[Example], device: Device) -> Teacher:
    require(task.shape in SHAPES, f"is not for {task.shape}", "teacher", folder)
    model, head, tokenizer = network.load_finetuned(folder)
    require(head.labels == task.labels, f"its labels are {head.labels}", "teacher", folder)
    model = model.to(device.torch).eval().requires_grad_(False)
    features = head.make_featurizer(tokenizer)(examples)
    logits = torch.from_numpy(np.stack(predict_logits(model, features, head.shape, device)))
    return Teacher(folder, model, tokenizer, logits.to(device.torch))


def cut_teacher(folder: Path, encoder: str, dropout: float | None = None) -> nn.Module:
    """Return the teacher with those of its layers that `encoder` says: `half`, or `layers:N`."""
    model, _, _ = network.load_finetuned(folder, dropout)
    for module in model.modules():
        layers = getattr(module, "layer", None)
        if isinstance(layers, nn.ModuleList):
            kept = [layers[place] for place in choose_layers(encoder, len(layers))]
            module.layer = nn.ModuleList(kept)
            config: Any = model.config
            name = "num_hidden_layers" if hasattr(config, "num_hidden_layers") else "n_layers"
            setattr(config, name, len(kept))
            return model
    raise UserError(f"the layers of {folder} were not found", "encoder", encoder)


class DistillationLoss(nn.Module):
    """Computes the loss from network, inputs, targets and the indices of the features. Hidden
    states of a student of another width go through one linear layer for all layers, which is learnt
    with the student and dropped after training (TinyBERT, eq. 8). Attention is compared as the mean
    over the heads, whose numbers may differ.
    """

    def __init__(
        self, teacher: Teacher, student: nn.Module, tokenizer: Tokenizer, training: TrainingSetup
    ) -> None:
        super().__init__()
        self._training = training
        self._taught_by = [teacher]  # a list: its weights are not the loss's own to torch
        settings = training.settings
        self._inside = settings.hidden_weight > 0 or settings.attention_weight > 0
        models: list[Any] = [student, teacher.model]
        for model in models if settings.attention_weight > 0 else ():
            model.set_attn_implementation("eager")  # fused kernels give no attention weights
        configs = [model.config for model in models]
        if self._inside:
            name = "hidden_weight" if settings.hidden_weight > 0 else "attention_weight"
            is_same = tokenizer.get_vocab() == teacher.tokenizer.get_vocab()
            require(is_same, f"{teacher.folder} has another vocabulary", name)
            network.check_length(configs[1], settings.max_length or 0, str(teacher.folder))
        own, wanted = (int(getattr(c, "hidden_size", getattr(c, "dim", 0))) for c in configs)
        learnt = settings.hidden_weight > 0 and own != wanted
        projection = nn.Linear(own, wanted) if learnt else nn.Identity()
        self.projection = projection.to(training.device.torch)

    def forward(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        targets: Tensor,
        chosen: np.ndarray,
    ) -> Tensor:
        settings, training, teacher = self._training.settings, self._training, self._taught_by[0]
        wanted = {
            "output_hidden_states": self._inside,
            "output_attentions": settings.attention_weight > 0,
        }
        output = model(**select_inputs(model, inputs), **wanted)
        taught_logits = teacher.logits[torch.from_numpy(chosen)]
        soft = compute_soft_loss(output.logits, taught_logits, settings, training.shape)
        hard = compute_supervised_loss(output, targets, training)
        loss = settings.soft_weight * soft + (1 - settings.soft_weight) * hard
        if not self._inside:
            return loss
        with torch.no_grad():
            taught = teacher.model(**select_inputs(teacher.model, inputs), **wanted)
        mask = inputs["attention_mask"].flatten(0, -2)
        if settings.hidden_weight > 0:
            projected = [self.projection(states) for states in output.hidden_states]
            hidden = compute_hidden_loss(projected, taught.hidden_states, mask)
            loss = loss + settings.hidden_weight * hidden
        if settings.attention_weight > 0:
            attention = compute_attention_loss(output.attentions, taught.attentions, mask)
            loss = loss + settings.attention_weight * attention
        return loss


def compute_soft_loss(
    student: Tensor, teacher: Tensor, settings: FinetuningSettings, shape: str
) -> Tensor:
    """Return T² · KL(teacher ‖ student) at temperature T; for numbers the squared error."""
    if shape == "regression":
        return F.mse_loss(student.float(), teacher)
    t = settings.temperature
    own, taught = (F.log_softmax(logits / t, dim=-1) for logits in (student.float(), teacher))
    return t * t * F.kl_div(own, taught, reduction="batchmean", log_target=True)


def compute_hidden_loss(
    student: Sequence[Tensor], teacher: Sequence[Tensor], mask: Tensor
) -> Tensor:
    """Return the mean squared error of hidden states, without padding; layers are paired evenly."""
    weight = mask.unsqueeze(-1).float()
    losses = []
    for i, j in pair_layers(len(student) - 1, len(teacher) - 1, embeddings=True):
        squared = (student[i].float() - teacher[j].float()) ** 2
        losses.append((squared * weight).sum() / (weight.sum() * squared.shape[-1]))
    return torch.stack(losses).mean()


def compute_attention_loss(
    student: Sequence[Tensor], teacher: Sequence[Tensor], mask: Tensor
) -> Tensor:
    """Return the mean squared error of attention averaged over heads, without padding."""
    both = (mask.unsqueeze(1) * mask.unsqueeze(2)).float()
    losses = []
    for i, j in pair_layers(len(student), len(teacher)):
        squared = (student[i].float().mean(1) - teacher[j].float().mean(1)) ** 2
        losses.append((squared * both).sum() / both.sum())
    return torch.stack(losses).mean()


def pair_layers(student: int, teacher: int, embeddings: bool = False) -> list[tuple[int, int]]:
    """Return pairs of student layer and teacher layer (TinyBERT's uniform strategy)."""
    pairs = [(i, max(1, round(i * teacher / student))) for i in range(1, student + 1)]
    return [(0, 0), *pairs] if embeddings else [(i - 1, j - 1) for i, j in pairs]
