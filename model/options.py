"""What the command line of each job takes, with meanings, units, bounds and defaults."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from beam_jobs.core.settings import Settings
from model.config import RecipeName
from model.encoders.places import FORMS

SMALLEST_VOCABULARY = 200
"""Entries; fewer leave no room for words beside letters."""
DEV_REVIEWS = 20_000
"""Enough for the third digit of a rate."""

Device = Literal["auto", "cpu", "cuda", "xla"]
PretrainingDevice = Literal["auto", "cpu", "cuda", "xla", "xla-spmd"]
DEVICE = "where it is computed: auto takes a GPU where there is one; xla is one core of a TPU"
TASK = "its name: model/finetuning/tasks/README.md, or table:text=…,label=…"


class VocabularyOptions(Settings):
    """Options of model.vocabulary."""

    corpus: Path = Field(description="what corpus_job wrote")
    output: Path = Field(description="where vocab.txt and tokenizer.json go")
    size: int = Field(
        default=50_000, ge=SMALLEST_VOCABULARY, description="entries, special ones included"
    )
    lower_case: bool = Field(default=True, description="fold case and accents")
    strip_accents: bool | None = Field(
        default=None, description="remove accents; none: as --lower-case says"
    )
    unused: int = Field(default=100, ge=0, description="[unused…] slots kept free for later")
    sample_reviews: int = Field(
        default=1_000_000, ge=1, description="train on about so many reviews"
    )


class VocabularyFitOptions(Settings):
    """Options of model.vocabulary_fit."""

    corpus: Path = Field(description="what corpus_job made of a new dump")
    vocabulary: Path = Field(description="what model.vocabulary wrote")
    output: Path = Field(description="where fit.json goes")
    reviews: int = Field(default=DEV_REVIEWS, ge=1, description="measure about so many")
    unknown_rate: float = Field(
        default=0.005,
        ge=0,
        le=1,
        description="warn when the vocabulary's share of unknown words in the new dump is higher "
        "than it was in the first one by more than this",
    )
    tokens_per_word: float = Field(
        default=0.1,
        ge=0,
        le=10,
        description="warn when tokens per word are more than they were by this share of it",
    )


class OriginOptions(Settings):
    """Options of model.origin."""

    place: str = Field(description=f"the published encoder: {FORMS}")
    generator: str | None = Field(
        default=None, description="the published generator of an ELECTRA, likewise"
    )
    output: Path = Field(description="where its folder goes")


class PretrainOptions(Settings):
    """Options of model.pretrain."""

    shards: Path = Field(description="folder made by beam_jobs.shards_job")
    replay: tuple[Path, ...] = Field(default=(), description="earlier shards to mix in")
    replay_ratio: str = Field(
        default="0.5", description="share of the sequences taken from the earlier shards"
    )
    output: Path = Field(description="checkpoints, metrics.jsonl and the model folders")
    recipe: RecipeName = Field(description="size of the model and length of its training")
    steps: int | None = Field(
        default=None, ge=1, description="optimizer steps, instead of the recipe's"
    )
    budget: str | None = Field(
        default=None,
        description="instead of steps: a time (30min), or operations in matrix products "
        "(1.5e15flops)",
    )
    validation: Path | None = Field(
        default=None, description="shards of the dev split, measured every validate_every steps"
    )
    start_from: str | None = Field(
        default=None,
        description="weights to begin with, which decide the shape: what model.origin wrote, "
        f"or a published BERT, ELECTRA or DistilBERT ({FORMS})",
    )
    start_generator_from: Path | None = Field(
        default=None,
        description="the generator's transformers folder, if --start-from has none beside it",
    )
    probe: Path | None = Field(
        default=None,
        description="with --start-from: a corpus on whose train and dev labels the loaded weights "
        "and those that training makes of them are compared; the loaded ones are written where "
        "these are worse",
    )
    device: PretrainingDevice = Field(default="auto", description=f"{DEVICE}, xla-spmd all of them")
    processes: int | None = Field(
        default=None,
        ge=1,
        le=256,
        description="processes of this machine that share each batch: one for each GPU, or for "
        "some cores of the CPU; none: one",
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        description="threads of the CPU in each process; none: all cores, shared by --processes",
    )
    tensorboard: bool = Field(default=False, description="also write TensorBoard files at the end")
    set: tuple[str, ...] = Field(
        default=(),
        description="any field of PretrainingConfig or Architecture (model/config.py), or "
        "AdaptationConfig (model/config.py); may be repeated",
    )


class FinetuneOptions(Settings):
    """Options of the fine-tuning."""

    encoder: str = Field(
        description="model folder or hub name; `random` (with --architecture); `half` or "
        "`layers:N`: layers of --teacher; `tfidf`, or `frozen:` and a folder or hub name: logistic "
        "regression on n-grams, or on the states of an encoder that is not trained"
    )
    architecture: str | None = Field(
        default=None, description="for `random`: folder whose config and tokenizer to use"
    )
    initializer_range: float | None = Field(
        default=None,
        gt=0,
        description="for `random`: deviation of its start weights, drawn as transformers does; "
        "none: as the pre-training of the architecture began, where its config.json says how",
    )
    teacher: Path | None = Field(
        default=None, description="distil: learn from this fine-tuned folder's outputs too"
    )
    cache: Path | None = Field(
        default=None,
        description="where tokens and teachers' outputs are kept for other fine-tunings; none: "
        "nowhere",
    )
    task: str = Field(description=TASK)
    data: Path = Field(description="the task's data")
    output: Path = Field(description="the fine-tuned model folder")
    evaluation: Path | None = Field(
        default=None, description="also evaluate on test and write it here"
    )
    seed: int = Field(default=0, description="head, order, dropout, training examples")
    recipe: RecipeName | None = Field(
        default=None, description="start from this recipe's fine-tuning defaults"
    )
    learning_rate: tuple[float, ...] = Field(
        default=(), description="the grid; best on dev is kept"
    )
    device: Device = Field(default="auto", description=DEVICE)
    set: tuple[str, ...] = Field(
        default=(), description="any field of FinetuningSettings (model/config.py); may be repeated"
    )


class EvaluateOptions(Settings):
    """Options of model.evaluate."""

    model: Path = Field(description="a folder made by model.finetune")
    task: str = Field(description=TASK)
    data: Path = Field(description="the task's data")
    output: Path = Field(description="folder of predictions and metrics")
    folds: tuple[Path, ...] = Field(
        default=(),
        description="evaluations of the folds of a cross-validation (model.finetune --set fold=K/N "
        "--evaluation DIR), which are joined; the model is the one that is kept",
    )
    split: Literal["train", "dev", "test"] = Field(default="test", description="of the task")
    device: Device = Field(default="auto", description=DEVICE)


class ExportOptions(Settings):
    """Options of model.export."""

    cells: tuple[str, ...] = Field(
        min_length=1,
        description="[ARM=]DIR: folders made by model.finetune; those of an arm differ in the seed",
    )
    evaluations: tuple[Path, ...] = Field(
        default=(),
        description="evaluations of the cells on test, in the same order; none: no test results",
    )
    task: str = Field(description=TASK)
    data: Path = Field(description="the task's data")
    output: Path = Field(description="the model folder")


class SearchOptions(FinetuneOptions):
    """Options of model.finetuning.search."""

    space: Path = Field(description="JSON: setting → choices or range")
    trials: int = Field(default=20, ge=1, description="fine-tunings tried; bad ones are pruned")


class LatencyOptions(Settings):
    """Options of model.evaluation.latency."""

    model: Path = Field(description="a folder made by model.finetune")
    task: str = Field(description=TASK)
    data: Path = Field(description="the task's data")
    output: Path = Field(description="JSON with the result")
    threads: int = Field(default=1, ge=1, description="threads of the CPU")
    device: Device = Field(default="auto", description=DEVICE)


class ReportOptions(Settings):
    """Options of model.report.report."""

    study: Path = Field(description="JSON: stages and evaluated cells")
    output: Path = Field(description="folder of the report")
