"""config.json of a model folder: how it is loaded, and what its answers are."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
ONNX, QUANTIZED, WORDS, PIPELINE = "model.onnx", "model_quantized.onnx", "words.npz", "model.skops"
"""Weights of a network in fp32 and in int8, those of TF-IDF, and a pipeline of scikit-learn."""
MULTILABEL = "multi_label_classification"  # `problem_type` of transformers
MAX_LABELS = 1_000
WRITTEN_BY = "`python -m amazon_electra.model.export` writes such a folder"
ScoringPrecision = Literal["fp32", "int8"]
Read = Callable[[str], bytes]  # file → content; FileNotFoundError where there is none
Fail = Callable[[str], Exception]  # A message → the error to raise


def shorten_task(task: str) -> str:
    """Return a task's name in the registry and in columns; of `label:fault` that of the column."""
    column = task.removeprefix("label:")
    return re.sub(r"[/:\s]+", "-", task if column in ("polarity", "stars") else column)


class Part(BaseModel):
    """One of several models, whose logits are weighted and added."""

    folder: str = Field(pattern="^[a-z0-9][a-z0-9-]{0,40}$")
    weight: float = Field(allow_inf_nan=False)


class Details(BaseModel):
    """The fields that transformers does not know."""

    kind: Literal["transformers", "onnx", "words", "skops", "parts"]
    """How the folder is loaded: the first two by ONNX Runtime, `parts` as folders of the others."""
    task: str = ""
    max_length: int = Field(default=512, ge=2)
    decided_from: float | None = None  # from this probability on it is `decided`, else `ask`
    thresholds: list[float] = []  # probabilities from which on a text has each class
    parts: list[Part] = []


class ModelConfig(BaseModel):
    """The fields of config.json that a reader of the folder needs."""

    id2label: dict[int, str] = Field(min_length=2, max_length=MAX_LABELS)
    temperature: float = Field(default=1, ge=0.01, le=100)
    pad_token_id: int | None = None
    problem_type: str | None = None
    amazon_electra: Details

    @field_validator("id2label")
    @classmethod
    def _check_labels(cls, labels: dict[int, str]) -> dict[int, str]:
        if sorted(labels) != list(range(len(labels))):
            raise ValueError("the labels are not numbered from 0")
        check_labels(list(labels.values()))
        return labels

    @model_validator(mode="after")
    def _check(self) -> Self:
        details = self.amazon_electra
        if (found := len(details.thresholds)) != self.is_multilabel * len(self.labels):
            raise ValueError(f"{found} thresholds of {len(self.labels)} labels")
        if (details.kind == "parts") != bool(details.parts):
            raise ValueError("amazon_electra.parts: needed by the kind parts, and by no other")
        return self

    @property
    def labels(self) -> list[str]:
        return [label for _, label in sorted(self.id2label.items())]

    @property
    def is_multilabel(self) -> bool:
        return self.problem_type == MULTILABEL

    @property
    def is_network(self) -> bool:
        return self.amazon_electra.kind in ("transformers", "onnx")

    def list_files(self, precision: ScoringPrecision) -> list[str]:
        """Return the names of the files that score, weights first; none of a folder of parts."""
        kind = self.amazon_electra.kind
        if self.is_network:
            return [QUANTIZED if precision == "int8" else ONNX, TOKENIZER]
        return [{"words": WORDS, "skops": PIPELINE}[kind]] if kind != "parts" else []


def check_labels(labels: list[str]) -> None:
    """Raise ValueError for labels that are empty or equal."""
    if not all(labels):
        raise ValueError("labels: one is empty")
    if equal := sorted({label for label in labels if labels.count(label) > 1}):
        raise ValueError(f"two labels are equal: {', '.join(equal)}")


@dataclass(frozen=True)
class Folder:
    """Reads the files of a model folder, and makes the errors that name it."""

    read: Read
    fail: Fail = ValueError

    def read_file(self, name: str) -> bytes:
        try:
            return self.read(name)
        except FileNotFoundError:
            raise self.fail(f"has no {name}") from None

    def read_config(self) -> ModelConfig:
        content = self.read_file(CONFIG)
        try:
            return ModelConfig.model_validate_json(content)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "it"
            why = f"{CONFIG} is not that of a classifier ({where}: {first['msg']})"
        raise self.fail(f"{why}; {WRITTEN_BY}")

    def list_parts(self) -> Iterator[tuple["Folder", float]]:
        """Yield the folder of each part and its weight; one with other labels, or parts, fails."""
        config = self.read_config()
        for part in config.amazon_electra.parts:

            def read(name: str, folder: str = part.folder) -> bytes:
                return self.read(f"{folder}/{name}")

            def fail(why: str, folder: str = part.folder) -> Exception:
                return self.fail(f"{folder} {why}")

            own = Folder(read, fail).read_config()
            if own.amazon_electra.parts or own.labels != config.labels:
                raise fail("is no part of it: parts have its labels, and no parts")
            yield Folder(read, fail), part.weight
