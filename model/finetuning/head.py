"""How a fitted folder is used: its task.json. Imports no torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.nesting import read_json
from amazon_electra.model.finetuning.examples import Shape, Task

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from amazon_electra.model.finetuning.features import Featurizer

NETWORK = "finetuned"
"""The arm (model/arms) of a network that loads with its architecture's own class."""


@dataclass(frozen=True)
class Head:
    """How a fitted folder is used, besides its weights."""

    task: str
    shape: Shape
    labels: tuple[str, ...]
    max_length: int
    stride: int
    threshold: float = 0.0
    """For `span`: by how much "no answer" must outscore the best answer, chosen on dev."""
    kind: str = NETWORK
    """Name of the arm (model/arms) that wrote the folder."""

    def make_featurizer(self, tokenizer: "Tokenizer") -> "Featurizer":
        from amazon_electra.model.finetuning.features import Featurizer

        return Featurizer(tokenizer, self.shape, self.max_length, self.stride)


def read_task_head(folder: Path) -> Head:
    is_there = (folder / "task.json").exists()
    require(is_there, "no task.json there, as model.finetune writes it", "model", folder)
    read = read_json(folder / "task.json")
    return Head(
        **{n: read[n] for n in Head.__dataclass_fields__ if n in read}
        | {"labels": tuple(read["labels"])}
    )


def make_task(head: Head) -> Task:
    return Task(head.task, head.shape, head.labels, (), lambda *_: [], "")
