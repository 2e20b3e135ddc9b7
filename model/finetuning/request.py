"""Say what a fine-tuning is asked for: network, task, data, settings. Brings no torch."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.settings import replace_settings
from amazon_electra.model.config import FinetuningSettings
from amazon_electra.model.finetuning import VERSION
from amazon_electra.model.finetuning.examples import Example, Sampling, Split, Task, load_examples

PART_OF_TEACHER = re.compile(r"half|layers:([1-9][0-9]*)")


@dataclass(frozen=True)
class Start:
    """The network before fine-tuning."""

    encoder: str
    """Folder or hub name, or `random`, `half`, `layers:N` of the teacher; or empty."""
    architecture: str | None = None
    teacher: Path | None = None
    arm: str = "finetuned"
    parts: tuple[Path, ...] = ()
    """Fitted folders that an arm combines."""

    @property
    def part_of(self) -> Path | None:
        """The teacher whose layers the network takes; None: it takes those of `encoder`."""
        needs = is_part_of_teacher(self.encoder) and self.teacher is None
        require(not needs, "needs `teacher`", "encoder", self.encoder)
        return self.teacher if is_part_of_teacher(self.encoder) else None


@dataclass(frozen=True)
class Request:
    """Everything that decides the result of a fine-tuning."""

    start: Start
    task: Task
    data: Path
    settings: FinetuningSettings
    seed: int = 0
    """Decides the head, the order, dropout and the training examples."""
    cache: Path | None = None
    """Folder of tokenized texts and states, which decides nothing."""

    def describe(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "task": self.task.name,
            "seed": self.seed,
            "arm": self.start.arm,
            "encoder": self.start.encoder or self.start.arm,
            "architecture": self.start.architecture,
            "teacher": str(self.start.teacher) if self.start.teacher else None,
            "data": str(self.data),
            "settings": self.settings.model_dump(),
            "phrases": self.task.phrases,
            **({"parts": list(map(str, self.start.parts))} if self.start.parts else {}),
        }


def change_settings(base: FinetuningSettings, texts: Mapping[str, str]) -> FinetuningSettings:
    [changed] = replace_settings([base], texts, "finetuning")
    return changed


READ_BY: Mapping[str, tuple[str, ...]] = {
    "loss": ("classification", "tokens", "choice"),
    "focal_alpha": ("classification", "tokens"),
    "class_weights": ("classification",),
    "empty_windows": ("span",),
    "stride": ("span",),
}
"""Setting → the shapes of task that read it; all others are read by every shape."""
FOCAL_FIELDS = ("focal_alpha", "focal_gamma")
DISTILLATION_FIELDS = ("temperature", "soft_weight", "hidden_weight", "attention_weight")


def check_for_task(settings: FinetuningSettings, task: Task, has_teacher: bool) -> None:
    """Raise a UserError for a setting that the task would silently pass over."""
    for name in sorted(settings.model_fields_set):
        if getattr(settings, name) == FinetuningSettings.model_fields[name].default:
            continue
        why = ""
        if task.shape not in READ_BY.get(name, (task.shape,)):
            why = f"on {task.name}"
        elif name in FOCAL_FIELDS and settings.loss != "focal":
            why = "without loss=focal"
        elif name in DISTILLATION_FIELDS and not has_teacher:
            why = "without a teacher"
        require(not why, f"has no effect {why}: leave it out", name, getattr(settings, name))
    alphas, classes = len(settings.focal_alpha), len(task.labels)
    are_all = not alphas or alphas == classes or (alphas, classes) == (1, 2)
    require(are_all, f"needs {classes}, for each class one", "focal_alpha", settings.focal_alpha)


def choose_sampling(settings: FinetuningSettings, split: Split, seed: int) -> Sampling:
    """Return which examples are used: of training by the seed, of dev and test always the same."""
    has_dev = settings.selection == "dev"
    if split == "train":
        return Sampling(settings.n_train, seed, settings.sampling == "balanced", has_dev)
    n = settings.n_dev if split == "dev" else settings.n_test
    return Sampling(n, balanced=settings.balanced_test, has_dev=has_dev)


def load_split(request: Request, split: Split) -> tuple[Sequence[Example], Counter[str]]:
    """Return the examples of a split, and by reason how many are left out."""
    left_out: Counter[str] = Counter()
    if split == "dev" and request.settings.selection == "cross-validation":
        return [], left_out
    sampling = choose_sampling(request.settings, split, request.seed)
    return load_examples(request.task, request.data, split, sampling, left_out), left_out


def is_part_of_teacher(encoder: str) -> bool:
    """Return whether `--encoder` (or a study's `encoder`) is `half` or `layers:N` of a teacher."""
    return PART_OF_TEACHER.fullmatch(encoder) is not None


def choose_layers(encoder: str, depth: int) -> list[int]:
    """Return the layers kept of so many: every second, or N evenly spread, the first always."""
    if encoder == "half":
        return list(range(0, depth, 2))
    count = int(encoder.removeprefix("layers:"))
    require(count <= depth, f"the teacher has {depth} layers", "encoder", encoder)
    return [i * depth // count for i in range(count)]
