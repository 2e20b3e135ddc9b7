"""What the command line of each job takes, with meanings, units, bounds and defaults."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from beam_jobs.job.settings import setting
from model.config import Precision, PresetName
from model.encoders.places import FORMS

SMALLEST_VOCABULARY = 200
"""Entries; fewer leave no room for words beside letters."""
DEV_REVIEWS = 20_000
"""Enough for the third digit of a rate."""

Device = Literal["auto", "cpu", "cuda", "xla"]
PretrainingDevice = Literal["auto", "cpu", "cuda", "xla", "xla-spmd"]
DEVICE = "where it is computed: auto takes a GPU where there is one; xla is one core of a TPU"
TASK = "its name: model/finetuning/tasks/README.md, or table:text=…,label=…"


@dataclass(frozen=True, kw_only=True)
class VocabularyOptions:
    """Options of model.vocabulary."""

    corpus: Path = setting("what corpus_job wrote", metavar="DIR")
    output: Path = setting("where vocab.txt and tokenizer.json go", metavar="DIR")
    size: int = setting("entries, special ones included", 50_000, ge=SMALLEST_VOCABULARY)
    lower_case: bool = setting("fold case and accents", True)
    strip_accents: bool | None = setting("remove accents; none: as --lower-case says", None)
    unused: int = setting("[unused…] slots kept free for later", 100, ge=0)
    sample_reviews: int = setting("train on about so many reviews", 1_000_000, ge=1)
    compare: tuple[str, ...] = setting(
        "other vocabularies to measure on the dev split: vocab.txt files or folders with a "
        "tokenizer.json",
        (),
        metavar="PLACE",
    )


@dataclass(frozen=True, kw_only=True)
class VocabularyFitOptions:
    """Options of model.vocabulary_fit."""

    corpus: Path = setting("what corpus_job made of a new dump", metavar="DIR")
    vocabulary: Path = setting("what model.vocabulary wrote", metavar="DIR")
    output: Path = setting("where fit.json goes", metavar="DIR")
    split: str = setting("side of the corpus", "pretrain")
    reviews: int = setting("measure about so many", DEV_REVIEWS, ge=1)
    unknown_rate: float = setting(
        "warn when the vocabulary's share of unknown words in the new dump is higher than it was "
        "in the first one by more than this",
        0.005,
        ge=0,
        le=1,
    )
    tokens_per_word: float = setting(
        "warn when tokens per word are more than they were by this share of it", 0.1, ge=0, le=10
    )
    new_size: int = setting(
        "measure a new vocabulary of so many entries too, trained on the corpus; 0: none", 0, ge=0
    )


@dataclass(frozen=True, kw_only=True)
class OriginOptions:
    """Options of model.origin."""

    place: str = setting(f"the published encoder: {FORMS}", metavar="PLACE")
    generator: str | None = setting(
        "the published generator of an ELECTRA, likewise", None, metavar="PLACE"
    )
    output: Path = setting("where its folder goes", metavar="DIR")


@dataclass(frozen=True, kw_only=True)
class PretrainOptions:
    """Options of model.pretrain."""

    shards: Path = setting("folder made by beam_jobs.shards_job", metavar="DIR")
    replay: tuple[Path, ...] = setting("earlier shards to mix in", (), metavar="DIR")
    replay_ratio: str = setting("share of the sequences taken from the earlier shards", "0.5")
    output: Path = setting("checkpoints, metrics.jsonl and the model folders", metavar="DIR")
    preset: PresetName = setting("size of the model and length of its training")
    steps: int | None = setting("optimizer steps, instead of the preset's", None, ge=1)
    budget: str | None = setting(
        "instead of steps: a time (30min), or operations in matrix products (1.5e15flops)", None
    )
    validation: Path | None = setting(
        "shards of the dev split, measured every validate_every steps", None, metavar="DIR"
    )
    start_from: str | None = setting(
        "weights to begin with, which decide the shape: what model.origin wrote, or a published "
        f"BERT, ELECTRA or DistilBERT ({FORMS})",
        None,
        metavar="PLACE",
    )
    start_generator_from: Path | None = setting(
        "the generator's transformers folder, if --start-from has none beside it",
        None,
        metavar="DIR",
    )
    probe: Path | None = setting(
        "with --start-from: a corpus on whose train and dev labels the loaded weights and those "
        "that training makes of them are compared; the loaded ones are written where these are "
        "worse",
        None,
        metavar="DIR",
    )
    device: PretrainingDevice = setting(f"{DEVICE}, xla-spmd all of them", "auto")
    processes: int | None = setting(
        "processes of this machine that share each batch: one for each GPU, or for some cores of "
        "the CPU; none: one",
        None,
        ge=1,
        le=256,
    )
    threads: int | None = setting(
        "threads of the CPU in each process; none: all cores, shared by --processes", None, ge=1
    )
    tensorboard: bool = setting("also write TensorBoard files at the end", False, is_flag=True)
    settings: tuple[str, ...] = setting(
        "any field of PretrainingConfig or Architecture (model/config.py), or AdaptationConfig "
        "(model/pretraining/adaptation/config.py); may be repeated",
        (),
        option="--set",
        metavar="FIELD=VALUE",
    )


@dataclass(frozen=True, kw_only=True)
class FinetuneOptions:
    """Options of the fine-tuning."""

    encoder: str = setting(
        "model folder or hub name; `random` (with --architecture); `half` or `layers:N`: layers of "
        "--teacher",
        metavar="DIR|random|half|layers:N",
    )
    architecture: str | None = setting(
        "for `random`: folder whose config and tokenizer to use", None, metavar="DIR"
    )
    initializer_range: float | None = setting(
        "for `random`: deviation of its start weights, drawn as transformers does; none: as the "
        "pre-training of the architecture began, where its config.json says how",
        None,
        gt=0,
    )
    teacher: Path | None = setting(
        "distil: learn from this fine-tuned folder's outputs too", None, metavar="DIR"
    )
    cache: Path | None = setting(
        "where tokens and teachers' outputs are kept for other fine-tunings; none: nowhere",
        None,
        metavar="DIR",
    )
    task: str = setting(TASK, metavar="NAME")
    data: Path = setting("the task's data", metavar="DIR")
    output: Path = setting("the fine-tuned model folder", metavar="DIR")
    evaluation: Path | None = setting(
        "also evaluate on test and write it here", None, metavar="DIR"
    )
    seed: int = setting("head, order, dropout, training examples", 0)
    preset: PresetName | None = setting("start from this preset's fine-tuning defaults", None)
    learning_rate: tuple[float, ...] = setting("the grid; best on dev is kept", (), metavar="RATE")
    device: Device = setting(DEVICE, "auto")
    settings: tuple[str, ...] = setting(
        "any field of FinetuningSettings (model/config.py); may be repeated",
        (),
        option="--set",
        metavar="FIELD=VALUE",
    )


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Options of model.evaluate."""

    model: Path = setting("a folder made by model.finetune", metavar="DIR")
    task: str = setting(TASK, metavar="NAME")
    data: Path = setting("the task's data", metavar="DIR")
    output: Path = setting("folder of predictions and metrics", metavar="DIR")
    split: Literal["train", "dev", "test", "submission"] = setting(
        "`submission` (GLUE) writes the file the official site takes, from the test set without "
        "labels",
        "test",
    )
    device: Device = setting(DEVICE, "auto")


@dataclass(frozen=True, kw_only=True)
class ScorerOptions:
    """Options of model.scorer."""

    model: Path = setting("a folder made by model.finetune", metavar="DIR")
    output: Path = setting("folder of the exported program", metavar="DIR")
    precision: Precision = setting(
        "type of weights and states; auto: bf16 if this CPU is fast at multiplying it, else fp32",
        "auto",
    )


@dataclass(frozen=True, kw_only=True)
class SearchOptions(FinetuneOptions):
    """Options of model.finetuning.search."""

    space: Path = setting("JSON: setting → choices or range", metavar="FILE")
    trials: int = setting("fine-tunings tried; bad ones are pruned", 20, ge=1)


@dataclass(frozen=True, kw_only=True)
class LatencyOptions:
    """Options of model.evaluation.latency."""

    model: Path = setting("a folder made by model.finetune", metavar="DIR")
    task: str = setting(TASK, metavar="NAME")
    data: Path = setting("the task's data", metavar="DIR")
    output: Path = setting("JSON with the result", metavar="FILE")
    threads: int = setting("threads of the CPU", 1, ge=1)
    device: Device = setting(DEVICE, "auto")


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Options of model.report.report."""

    study: Path = setting("JSON: stages and evaluated cells", metavar="FILE")
    output: Path = setting("folder of the report", metavar="DIR")
