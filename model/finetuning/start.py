"""Say what a fine-tuning starts from: a folder, a hub name, random weights, layers of a teacher."""

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from beam_jobs.job.errors import UserError
from model.config import FinetuningSettings
from model.finetuning.distillation import cut_teacher
from model.finetuning.features.examples import Task
from model.finetuning.network import encoders
from model.finetuning.teacher_layers import is_part_of_teacher


@dataclass(frozen=True)
class Start:
    """What the network is before fine-tuning."""

    encoder: str
    """Folder or hub name, `random`, or `half` or `layers:N` of the teacher."""
    architecture: str | None = None
    teacher: Path | None = None
    initializer_range: float | None = None
    """Of a random encoder; None: as the pre-training of its architecture began."""

    @property
    def tokenizer_folder(self) -> str:
        """Folder or hub name whose tokenizer is used."""
        if is_part_of_teacher(self.encoder):
            return str(self._require_teacher())
        return encoders.find_source_folder(self.encoder, self.architecture)

    def choose_pooling(self, settings: FinetuningSettings) -> str:
        """Return the pooling: a part of a teacher is pooled as the teacher is."""
        if is_part_of_teacher(self.encoder):
            return encoders.read_task_head(self._require_teacher()).pooling
        return settings.pooling

    def build_network(self, task: Task, settings: FinetuningSettings) -> nn.Module:
        if is_part_of_teacher(self.encoder):
            return cut_teacher(self._require_teacher(), self.encoder, settings.dropout)
        return encoders.build_network(
            self.encoder,
            self.architecture,
            task,
            settings.pooling,
            settings.dropout,
            self.initializer_range,
        )

    def _require_teacher(self) -> Path:
        if self.teacher is None:
            raise UserError(
                f"--encoder {self.encoder} needs --teacher DIR: a folder made by model.finetune"
            )
        return self.teacher
