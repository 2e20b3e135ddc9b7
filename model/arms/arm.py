"""The base class of arms."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.beam_jobs.core.nesting import find_json
from amazon_electra.beam_jobs.model_folder.config import MULTILABEL
from amazon_electra.beam_jobs.model_folder.probabilities import apply_temperature
from amazon_electra.beam_jobs.model_folder.words import Words
from amazon_electra.model.arms.out_of_fold import OutOfFold
from amazon_electra.model.config import Precision
from amazon_electra.model.finetuning.examples import Example, Shape, Task
from amazon_electra.model.finetuning.request import Request

if TYPE_CHECKING:
    from amazon_electra.model.evaluation.predictions import Predictions

Examples = Sequence[Example]
WORK = "attempts"
"""Folder in that of a fit, which is removed after it."""
Format = Literal["transformers", "onnx", "words", "skops", "parts"]
"""How an exported folder is loaded: by AutoModelForSequenceClassification (ONNX Runtime too), by
ONNX Runtime alone, as TF-IDF (`Words`), as a pipeline of scikit-learn by skops, or as folders of
these, whose logits are weighted and added. `score` and servers know these and no arm."""
EXAMPLE_FIELDS = (
    *("n_train", "n_dev", "n_test", "sampling", "balanced_test"),
    *("selection", "max_length", "precision"),
)
"""The fields of FinetuningSettings that say which examples are read, and how texts are."""


class Diverged(UserError):
    """A fit that came to no finite weights."""


@dataclass(frozen=True)
class Resources:
    """Device, precision and cache of an arm; none of them decides the result."""

    device: str = "auto"
    precision: Precision = "auto"
    cache: Path | None = None
    """Folder of tokens and states that fits and evaluations share."""


@dataclass(frozen=True)
class Exported:
    """The exported folder, as `Arm.export` describes it."""

    format: Format
    temperature: float = 1.0
    """By which readers of the folder divide the logits: 1 where the weights hold it."""
    config: dict[str, Any] = field(default_factory=dict)
    """Fields of config.json that readers need: max_length, pad_token_id."""
    facts: dict[str, Any] = field(default_factory=dict)
    """For results.json and the card."""


class Arm(ABC):
    """A fitted classifier; the class says what others ask of its kind, its docstring what it is.
    `model.finetune.finetune` calls `fit` and `save`, every evaluation `load` and `predict`,
    `model.export.export` calls `load` and `export`.
    """

    name: ClassVar[str]
    """In FinetuneConfig.arm, forms and task.json."""
    title: ClassVar[str]
    """The name in the terminal, reports and MLflow; {} stands for the encoder's name, or for
    the network that the arm combines with others."""
    cross_validates: ClassVar[bool] = False
    """Whether `fit` chooses by folds of the training examples, and sets `out_of_fold`."""
    combines: ClassVar[tuple[str, ...]] = ()
    """The arms whose fitted folders it is fitted from, `Start.parts`, with the same examples."""
    shapes: ClassVar[tuple[Shape, ...]] = ("classification", "multilabel")
    """The shapes of task that it is for."""
    settings: ClassVar[tuple[str, ...] | None] = EXAMPLE_FIELDS
    """The fields of FinetuningSettings that it reads; None: all that the task reads."""
    reads_encoder: ClassVar[bool]
    """Whether it needs the folder of an encoder: where its title has {}."""
    is_cheap: ClassVar[bool]
    """Whether a fit takes seconds on a CPU (the arms of the label curve), and its seed decides
    nothing but which examples are drawn: where it reads no settings but those of the examples, and
    combines no other arms."""

    facts: dict[str, Any]
    """Choices and counts of `fit`, for result.json: `tried`, `n_train`, `parameters`, `device`,
    and whatever else the arm knows."""
    words: Words | None = None
    """Its TF-IDF, whose words are shown; None where it has none."""
    out_of_fold: OutOfFold | None = None
    """Predictions of the training examples, where `fit` cross-validates; else model.finetune's."""

    def __init_subclass__(cls) -> None:
        cls.reads_encoder = "{}" in getattr(cls, "title", "")
        cls.is_cheap = cls.settings is not None and not cls.combines

    @classmethod
    @abstractmethod
    def fit(
        cls, train: Examples, dev: Examples, request: Request, resources: Resources, output: Path
    ) -> Self:
        """Return the arm fitted to the training examples. `dev` chooses between its settings; where
        it is empty, an arm that does not cross-validate finds one learning rate in `request`, and
        keeps what it ends with. What is kept in `output` / WORK lets a killed fit continue.
        """

    @abstractmethod
    def predict_logits(self, examples: Examples) -> np.ndarray:
        """Return logits, float [examples, classes] in the order of the task's labels: any numbers
        whose softmax are the probabilities, such as their logarithms.
        """

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what `load` reads, to a folder that has task.json already."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, resources: Resources) -> Self:
        """Return what `save` wrote; UserError where it is missing or damaged."""

    @abstractmethod
    def export(self, folder: Path, temperature: float, task: Task) -> Exported:
        """Write the folder that others load, logits over `temperature`, without config and card."""

    def predict(self, texts: Sequence[str]) -> np.ndarray:
        """Return probabilities [texts, classes]."""
        examples = [Example(str(i), text) for i, text in enumerate(texts)]
        return apply_temperature(np.asarray(self.predict_logits(examples)), 1.0)

    def predict_examples(self, examples: Examples, task: Task) -> "Predictions":
        """Return the predictions for examples of a task."""
        from amazon_electra.model.evaluation.predict import make_predictions

        return make_predictions(list(self.predict_logits(examples)), [], examples, task)


def write_config(
    folder: Path, arm: type[Arm], exported: Exported, task: str, labels: Sequence[str]
) -> None:
    """Add to config.json what transformers has no field for; write it where there is none."""
    file = folder / "config.json"
    config = find_json(file)
    config["id2label"] = {str(place): label for place, label in enumerate(labels)}
    config["label2id"] = {label: place for place, label in enumerate(labels)}
    config["temperature"] = exported.temperature
    read = dict(exported.config)
    if "pad_token_id" in read:
        config["pad_token_id"] = read.pop("pad_token_id")
    if "thresholds" in read:
        config["problem_type"] = MULTILABEL
    own = {"kind": exported.format, "arm": arm.name, "task": task, **read}
    write_json(file, config | {"amazon_electra": own})
