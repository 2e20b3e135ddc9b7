"""Results of the functions of this package: the fields of the file that each writes."""

from dataclasses import dataclass, field
from typing import Any

from amazon_electra.beam_jobs.core.results import Result


@dataclass(frozen=True)
class VocabularyResult(Result):
    """Result of train_vocabulary: vocabulary.json."""

    size: int
    """Entries."""
    reviews: int
    """Reviews that were read, of `reviews_in_corpus`."""
    reviews_in_corpus: int
    fingerprint: str
    """SHA-256 of tokenizer.json."""


@dataclass(frozen=True)
class PretrainResult(Result):
    """Result of pretrain: result.json."""

    encoder: str
    """The folder to fine-tune."""
    steps: int
    sequences: int
    tokens: int
    """Tokens of all steps, without padding."""
    matrix_flops: float
    """Operations of matrix products."""
    seconds: float
    """Time of all calls that continued this training, without validations."""
    tokens_per_second: int
    parameters: int
    device: str
    precision: str
    validation_loss: float | None = None
    """On the shards of `validation`."""
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class FinetuneResult(Result):
    """Result of finetune: result.json."""

    seconds: float
    dev: dict[str, float] = field(default_factory=dict)
    """Metrics on what chose the state: dev or held-out examples, the main one first."""
    n_train: int = 0
    """Labels."""
    n_dev: int = 0
    test: dict[str, float] = field(default_factory=dict)
    """Metrics on test, where `evaluation` was given."""


@dataclass(frozen=True)
class EvaluationResult(Result):
    """Result of evaluate: metrics.json."""

    task: str
    split: str
    n: int
    """Examples."""
    main_metric: str
    metrics: dict[str, dict[str, float]]
    """Each as `value`, `low` and `high`, its bootstrap 95% interval."""
    labels: list[str] = field(default_factory=list)
    """Classes of the task, in the order of `confusion`."""
    confusion: list[list[int]] = field(default_factory=list)
    """Examples by label (rows) and prediction."""


@dataclass(frozen=True)
class SearchResult(Result):
    """Result of search: best.json. It also has the first metric on dev, as `dev_` and its name."""

    settings: dict[str, Any]
    """The best ones, as FinetuneConfig.settings takes them."""
    trials: int
    """Those that ended; the next two are its parts."""
    pruned: int = 0
    complete: int = 0


@dataclass(frozen=True)
class ExportResult(Result):
    """Result of export: results.json, but for its `arms`."""

    task: str
    labels: list[str]
    arm: str
    """The arm that became the model, which is `best_arm` unless that one's encoder is random."""
    kind: str
    """Name of its class in the registry of arms."""
    seed: int
    best_arm: str
    metric: str
    temperature: float
    """Divides the logits before the softmax."""
    is_calibrated: bool = True
    """Whether the weights hold the temperature."""
    n_test: int = 0
    classes: list[dict[str, Any]] = field(default_factory=list)
    """Figures of each class on test."""
    against: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By simple model, the differences on test with their intervals."""
    questions: dict[str, Any] = field(default_factory=dict)
    """Labels that look wrong, where it can be trusted, where it is weak."""


@dataclass(frozen=True)
class UnlabelledResult(Result):
    """Result of classify_without_labels: results.json."""

    task: str
    labels: list[str]
    texts: int
    """Reviews of the corpus that were answered."""
    answers: dict[str, int]
    """How many of them each class has."""
    titles: dict[str, list[str]]
    """The most frequent titles of the corpus with each answer: how customers say it."""
    says: str
    """That nothing measured it."""
