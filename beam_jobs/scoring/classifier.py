"""The model folder in a worker: texts → probabilities of the classes.

A folder holds data, not a program: model.onnx and tokenizer.json, or model.skops, of which only
types of scikit-learn, SciPy and NumPy are loaded; config.json describes either. Or it holds such
folders, whose logits are weighted and added.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field, ValidationError, model_validator

from amazon_electra.beam_jobs.config import ScoringPrecision
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.command import keep_freed_memory
from amazon_electra.beam_jobs.core.drift import PROFILE, Profile
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import hash_bytes
from amazon_electra.beam_jobs.core.model_folder import (
    MULTILABEL,
    ONNX,
    PIPELINE,
    PROBE,
    QUANTIZED,
    WrongScores,
    apply_temperature,
    check_labels,
    check_parts,
    check_temperature,
    load_graph,
    load_pipeline,
    load_tokenizer,
    sum_parts,
    take_logarithms,
)
from amazon_electra.beam_jobs.core.word_weights import WordWeights


class Details(BaseModel):
    """What config.json says beside what transformers reads."""

    kind: Literal["transformers", "onnx", "skops", "parts"]
    """How the folder is loaded: the first two by ONNX Runtime, `parts` as folders of the others."""
    task: str = ""
    max_length: int = Field(default=512, ge=2)
    decided_from: float | None = None
    """Probability from which on an answer is `decided`, below `ask`; None: nobody asked for it."""
    numbers: list[float] = []
    """That the classes stand for, such as 1 to 5 stars."""
    thresholds: list[float] = []
    """Of a multi-label model: the probability of each class from which on a text has it."""
    parts: list[dict[str, Any]] = []
    """`folder` and `weight` of each part."""

    @model_validator(mode="after")
    def _check(self) -> "Details":
        if self.kind == "parts":
            check_parts(self.parts)
        return self


class ModelConfig(BaseModel):
    """What a worker reads of config.json."""

    id2label: dict[int, str] = Field(min_length=2)
    temperature: float = 1
    pad_token_id: int | None = None
    problem_type: str | None = None
    amazon_electra: Details

    @model_validator(mode="after")
    def _check(self) -> "ModelConfig":
        if sorted(self.id2label) != list(range(len(self.id2label))):
            raise ValueError("id2label does not number the labels from 0")
        check_labels(self.labels)
        thresholds = self.amazon_electra.thresholds
        if self.is_multilabel and len(thresholds) != len(self.labels):
            raise ValueError(f"{len(thresholds)} thresholds of {len(self.labels)} labels")
        numbers = self.amazon_electra.numbers
        if numbers and len(numbers) != len(self.labels):
            raise ValueError(f"{len(numbers)} numbers of {len(self.labels)} labels")
        check_temperature(self.temperature)
        return self

    @property
    def labels(self) -> list[str]:
        return [label for _, label in sorted(self.id2label.items())]

    @property
    def is_multilabel(self) -> bool:
        return self.problem_type == MULTILABEL


@dataclass(frozen=True)
class Classifier:
    """What a worker process keeps."""

    folder: str
    labels: list[str]
    temperature: float
    compute_logits: Callable[[list[str]], np.ndarray]
    """Texts to [texts, classes]."""
    decided_from: float | None = None
    """Probability from which on an answer is `decided`."""
    numbers: Sequence[float] = ()
    """That the classes stand for, if they do."""
    profile: Profile | None = None
    """The texts that it was tested on; None: nobody knows."""
    task: str = ""
    words: WordWeights | None = None
    """Of TF-IDF, what a word adds to the logits."""
    is_linear: bool = False
    """Whether it is TF-IDF alone, to which one more text costs microseconds."""
    parts: Sequence[tuple["Classifier", float]] = ()
    """Whose logits are added, each with its weight."""
    thresholds: Sequence[float] = ()
    """Of a multi-label model, of each class."""

    def answer(self, probabilities: np.ndarray) -> list[Any]:
        """Return the label of each text, of a multi-label model the list of its labels."""
        if not self.thresholds:
            return [self.labels[best] for best in probabilities.argmax(1)]
        has = probabilities >= np.array(self.thresholds)
        return [[self.labels[c] for c in np.flatnonzero(row)] for row in has]

    def decide(self, probabilities: np.ndarray) -> list[str]:
        """Return `decided` or `ask` for each text."""
        assert self.decided_from is not None
        return ["decided" if best >= self.decided_from else "ask" for best in probabilities.max(1)]

    def score(self, texts: list[str]) -> np.ndarray:
        """Return probabilities, float32 [texts, classes]; UserError where a score is no number."""
        return self.compute_probabilities(texts).astype(np.float32)

    def compute_probabilities(self, texts: list[str]) -> np.ndarray:
        """Return probabilities, float64 [texts, classes]; UserError as `score`."""
        if not texts:
            return np.zeros((0, len(self.labels)))
        try:
            logits = self.compute_logits(texts)
        except WrongScores as error:
            raise UserError(f"{error}; export it again", "model", self.folder) from error
        return apply_temperature(logits, self.temperature, bool(self.thresholds))


def read_config(folder: str) -> ModelConfig:
    """Return the configuration of a model folder; UserError where it is none."""
    try:
        content = storage.read_bytes(storage.join_path(folder, "config.json"))
        return ModelConfig.model_validate_json(content)
    except FileNotFoundError:
        why = "has no config.json"
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        why = f"config.json is not that of a classifier ({where}: {first['msg']})"
    raise UserError(
        f"{why}; `python -m amazon_electra.model.export` writes such a folder", "model", folder
    )


def read_parts(folder: str, config: ModelConfig) -> Iterator[tuple[str, ModelConfig, float]]:
    """Yield the folder, the configuration and the weight of each part; UserError for a part of
    other labels, or one that has parts itself.
    """
    for part in config.amazon_electra.parts:
        place = storage.join_path(folder, part["folder"])
        own = read_config(place)
        if own.amazon_electra.kind == "parts" or own.labels != config.labels:
            raise UserError(
                f"{part['folder']} is no part of it: parts have its labels, and no parts",
                "model",
                folder,
            )
        yield place, own, part["weight"]


def list_model_files(folder: str, config: ModelConfig, precision: ScoringPrecision) -> list[str]:
    """Return the names of the files that score, the weights first; UserError for a missing one."""
    names = [PIPELINE]
    if config.amazon_electra.kind != "skops":
        names = [QUANTIZED if precision == "int8" else ONNX, "tokenizer.json"]
    elif precision == "int8":
        raise UserError(f"{folder} is no network; leave it out", "precision", "int8")
    for name in names:
        if not storage.exists(storage.join_path(folder, name)):
            if name == QUANTIZED:
                raise UserError(f"{folder} has no {QUANTIZED}; leave it out", "precision", "int8")
            raise UserError(
                f"has no {name}; `python -m amazon_electra.model.export` writes such a folder",
                "model",
                folder,
            )
    return names


def choose_precision(config: ModelConfig, precision: ScoringPrecision) -> ScoringPrecision:
    """Return the precision of a part: one that is no network has none."""
    return "fp32" if config.amazon_electra.kind == "skops" else precision


def hash_model(folder: str, precision: ScoringPrecision) -> str:
    """Return a digest of all that decides the probabilities; UserError for what is no model."""
    config = read_config(folder)
    if config.amazon_electra.kind == "parts":
        hashes = [storage.hash_file(storage.join_path(folder, "config.json"))]
        hashes += [
            hash_model(place, choose_precision(own, precision))
            for place, own, _ in read_parts(folder, config)
        ]
        return hash_bytes(" ".join(hashes).encode())
    names = ["config.json", *list_model_files(folder, config, precision)]
    hashes = [storage.hash_file(storage.join_path(folder, name)) for name in names]
    return hash_bytes(" ".join(hashes).encode())


def name_version(folder: str, precision: ScoringPrecision) -> str:
    """Return what stands for the version of a model that no registry has numbered: the first digits
    of the digest of all that decides its probabilities.
    """
    return hash_model(folder, precision)[:16]


def load_classifier(folder: str, precision: ScoringPrecision) -> Classifier:
    """Load a model folder, local or in a bucket, and try it on one text.

    Raises UserError for what cannot be loaded, or does not give each label a finite score.
    """
    keep_freed_memory()
    config = read_config(folder)
    details, is_multilabel = config.amazon_electra, config.is_multilabel
    about: dict[str, Any] = {
        "decided_from": details.decided_from,
        "numbers": details.numbers,
        "profile": read_profile(folder),
        "task": details.task,
        "thresholds": details.thresholds if is_multilabel else [],
    }
    if config.amazon_electra.kind == "parts":
        parts = list(read_parts(folder, config))
        loaded = [
            load_classifier(place, choose_precision(own, precision)) for place, own, _ in parts
        ]
        shares = [weight for _, _, weight in parts]
        about["parts"] = list(zip(loaded, shares, strict=True))

        def add(texts: list[str]) -> np.ndarray:
            found = [part.compute_probabilities(texts) for part in loaded]
            return sum_parts(found, shares, is_multilabel)

        return Classifier(folder, config.labels, config.temperature, add, **about)
    weights, *other = [
        storage.read_bytes(storage.join_path(folder, name))
        for name in list_model_files(folder, config, precision)
    ]
    words: WordWeights | None = None
    try:
        if other:
            tokenizer = load_tokenizer(other[0], config.amazon_electra.max_length)
            classes, pad = len(config.labels), config.pad_token_id
            compute = load_graph(weights, tokenizer, classes, pad, threads=1)  # a worker has a core
        else:
            pipeline, find = load_pipeline(weights, config.labels)
            words = WordWeights.of_pipeline(pipeline, config.labels)

            def compute_logits(texts: list[str]) -> np.ndarray:
                return take_logarithms(find(texts), is_multilabel)

            compute = compute_logits
        compute([PROBE])
    except Exception as error:  # each library raises whatever it comes upon
        why = " ".join(str(error).split())
        raise UserError(f"cannot be loaded ({why}); export it again", "model", folder) from error
    base = folder, config.labels, config.temperature, compute
    return Classifier(*base, words=words, is_linear=not other, **about)


def read_profile(folder: str) -> Profile | None:
    """Return the profile of the texts that a model was tested on; None where there is none."""
    file = storage.join_path(folder, PROFILE)
    return Profile.from_json(storage.read_bytes(file)) if storage.exists(file) else None
