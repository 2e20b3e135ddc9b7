"""Distillation: a small student learns from a fine-tuned teacher's outputs as well as from the labels.

Soft targets with a temperature (Hinton et al. 2015, arXiv 1503.02531); a student of every second layer of the teacher
(DistilBERT, arXiv 1910.01108); hidden states and attention as further targets (TinyBERT, arXiv 1909.10351). The
teacher's logits are computed once and kept, for other students too; its hidden states, which are too large to keep,
only where they are asked for.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import nn

from model.atomic_file import atomic_path
from model.command import UserMistake
from model.device import Device
from model.finetuning import encoders
from model.finetuning.batches import Encoder
from model.finetuning.config import FinetuningSettings
from model.finetuning.examples import Example, Task
from model.finetuning.loop import Training, accepted, outputs, supervised_loss

SHAPES = ("classification", "regression", "choice")


@dataclass(frozen=True)
class Teacher:
    """A fine-tuned folder and what it says of the training examples."""

    folder: Path
    model: nn.Module
    tokenizer: Tokenizer
    logits: torch.Tensor
    """Float32 [examples, classes], in the order of the features."""


def load_teacher(folder: Path, task: Task, examples: Sequence[Example], device: Device, kept_in: Path) -> Teacher:
    """Its logits are read from `kept_in` where they were computed before, by whichever student."""
    from safetensors.torch import load_file, save_file

    if task.shape not in SHAPES:
        raise UserMistake(f"--teacher: tasks of shape {task.shape} cannot be distilled, only {', '.join(SHAPES)}")
    model, head, tokenizer = encoders.load(folder)
    if head.labels != task.labels:
        raise UserMistake(f"--teacher {folder}: its labels are {head.labels}, the task's {task.labels}")
    model = model.to(device.torch).eval().requires_grad_(False)
    file = kept_in / f"teacher-{_fingerprint(folder, examples)}.safetensors"
    if not file.exists():
        encode = Encoder(tokenizer, head.shape, head.max_length, head.stride, head.clean)
        said = outputs(model, encode(examples), head.shape, device)
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(file) as temporary:
            save_file({"logits": torch.from_numpy(np.stack(said))}, temporary)
    return Teacher(folder, model, tokenizer, load_file(file)["logits"].to(device.torch))


def _fingerprint(folder: Path, examples: Sequence[Example]) -> str:
    """Of all that its logits follow from: weights, head, tokenizer, and the examples as they are written."""
    sources = hashlib.sha256()
    for name in ("model.safetensors", "head.safetensors", "task.json", "tokenizer.json"):
        if (folder / name).exists():
            sources.update((folder / name).read_bytes())
    for example in examples:
        sources.update(json.dumps([example.id, example.text, example.pair, example.choices]).encode())
    return sources.hexdigest()[:16]


def half_of(folder: Path, dropout: float | None = None) -> nn.Module:
    """The teacher with every second of its layers, from the first on; head and embeddings stay."""
    model, _, _ = encoders.load(folder, dropout)
    for module in model.modules():
        layers = getattr(module, "layer", None)
        if isinstance(layers, nn.ModuleList):
            kept = list(layers)[::2]
            module.layer = nn.ModuleList(kept)
            _set_depth(model, len(kept))
            return model
    raise UserMistake(f"--encoder half: the layers of {folder} were not found; give a student folder instead")


def _set_depth(model: nn.Module, layers: int) -> None:
    config: Any = model.config
    name = "num_hidden_layers" if hasattr(config, "num_hidden_layers") else "n_layers"
    setattr(config, name, layers)


class DistillationLoss(nn.Module):
    """Called by the loop: network, inputs, targets, indices of the features → loss.

    Hidden states of a student of another width go through a linear layer that is learnt beside it and dropped after
    training, one for all layers (TinyBERT, eq. 8). Attention is compared as the mean over the heads, of which student
    and teacher may have different numbers.
    """

    def __init__(self, teacher: Teacher, student: nn.Module, tokenizer: Tokenizer, training: Training) -> None:
        super().__init__()
        self._training = training
        self._taught_by = [teacher]  # in a list, for torch not to take its weights for the loss's own
        settings = training.settings
        self._inside = settings.hidden_weight > 0 or settings.attention_weight > 0
        if settings.attention_weight > 0:
            for model in (teacher.model, student):
                encoders.write_attention_out(model)
        if self._inside:
            _check_inside(teacher, tokenizer, settings)
        widths = _width(student), _width(teacher.model)
        learnt = settings.hidden_weight > 0 and widths[0] != widths[1]
        self.projection = nn.Linear(*widths).to(training.device.torch) if learnt else nn.Identity()

    def forward(
        self, model: nn.Module, inputs: dict[str, torch.Tensor], targets: torch.Tensor, chosen: np.ndarray
    ) -> torch.Tensor:
        settings, training, teacher = self._training.settings, self._training, self._taught_by[0]
        wanted = {"output_hidden_states": self._inside, "output_attentions": settings.attention_weight > 0}
        output = model(**accepted(model, inputs), **wanted)
        soft = soft_loss(output.logits, teacher.logits[torch.from_numpy(chosen)], settings, training.shape)
        hard = supervised_loss(output, targets, training)
        loss = settings.soft_weight * soft + (1 - settings.soft_weight) * hard
        if not self._inside:
            return loss
        with torch.no_grad():
            taught = teacher.model(**accepted(teacher.model, inputs), **wanted)
        mask = inputs["attention_mask"].flatten(0, -2)
        if settings.hidden_weight > 0:
            projected = [self.projection(states) for states in output.hidden_states]
            loss = loss + settings.hidden_weight * hidden_loss(projected, taught.hidden_states, mask)
        if settings.attention_weight > 0:
            loss = loss + settings.attention_weight * attention_loss(output.attentions, taught.attentions, mask)
        return loss


def _check_inside(teacher: Teacher, tokenizer: Tokenizer, settings: FinetuningSettings) -> None:
    """Hidden and attention losses show the teacher the student's own tokens."""
    asked = "hidden_weight" if settings.hidden_weight > 0 else "attention_weight"
    if tokenizer.get_vocab() != teacher.tokenizer.get_vocab():
        raise UserMistake(
            f"{asked}: the student's vocabulary is not that of the teacher {teacher.folder}; hidden and attention "
            "losses need the same tokens: set hidden_weight and attention_weight to 0"
        )
    encoders.check_length(teacher.model, settings.max_length, str(teacher.folder))


def soft_loss(student: torch.Tensor, teacher: torch.Tensor, settings: FinetuningSettings, shape: str) -> torch.Tensor:
    """T² · KL(teacher ‖ student) at temperature T, so that its gradients keep their size; squared error for numbers."""
    if shape == "regression":
        return F.mse_loss(student.float(), teacher)
    t = settings.temperature
    log_student = F.log_softmax(student.float() / t, dim=-1)
    return t * t * F.kl_div(log_student, F.log_softmax(teacher / t, dim=-1), reduction="batchmean", log_target=True)


def hidden_loss(student: Sequence[torch.Tensor], teacher: Sequence[torch.Tensor], mask: torch.Tensor) -> torch.Tensor:
    """Mean squared error of the hidden states that are not padding; layers spread evenly, embeddings included."""
    weight = mask.unsqueeze(-1).float()
    losses = []
    for i, j in layer_pairs(len(student) - 1, len(teacher) - 1, embeddings=True):
        squared = (student[i].float() - teacher[j].float()) ** 2
        losses.append((squared * weight).sum() / (weight.sum() * squared.shape[-1]))
    return torch.stack(losses).mean()


def attention_loss(
    student: Sequence[torch.Tensor], teacher: Sequence[torch.Tensor], mask: torch.Tensor
) -> torch.Tensor:
    """Mean squared error of the attention, averaged over heads, from and to tokens that are not padding."""
    both = (mask.unsqueeze(1) * mask.unsqueeze(2)).float()
    losses = []
    for i, j in layer_pairs(len(student), len(teacher)):
        squared = (student[i].float().mean(1) - teacher[j].float().mean(1)) ** 2
        losses.append((squared * both).sum() / both.sum())
    return torch.stack(losses).mean()


def layer_pairs(student: int, teacher: int, embeddings: bool = False) -> list[tuple[int, int]]:
    """Student layer ↔ teacher layer, the last with the last (TinyBERT's uniform strategy).

    Of a student that is the deeper one, several layers learn from the same; the first ones from the teacher's first.
    """
    pairs = [(i, max(1, round(i * teacher / student))) for i in range(1, student + 1)]
    return [(0, 0), *pairs] if embeddings else [(i - 1, j - 1) for i, j in pairs]


def _width(model: nn.Module) -> int:
    config: Any = model.config
    return int(getattr(config, "hidden_size", getattr(config, "dim", 0)))
