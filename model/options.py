"""What the command line of each job takes, with meanings, units, bounds and defaults."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from amazon_electra.beam_jobs.core.settings import MAX_SEED, Settings
from amazon_electra.model.config import AUTO_PRECISION, Precision, RecipeName
from amazon_electra.model.encoders.places import FORMS

MIN_VOCABULARY = 200
"""Entries; fewer leave no room for words beside letters."""
DEV_REVIEWS = 20_000
"""Enough for the third digit of a rate."""

Device = Literal["auto", "cpu", "cuda", "xla"]
PretrainingDevice = Literal["auto", "cpu", "cuda", "xla", "xla-spmd"]
DEVICE = "device to compute on: auto takes a GPU if there is one; xla is one core of a TPU"
TASK = "name of a task (model/finetuning/tasks/README.md)"


class VocabularyConfig(Settings):
    """What decides a vocabulary besides its corpus."""

    size: int = Field(
        default=50_000, ge=MIN_VOCABULARY, description="entries, special tokens included"
    )
    lower_case: bool = Field(default=True, description="fold case and accents")
    strip_accents: bool | None = Field(
        default=None, description="remove accents; none: as `lower_case` says"
    )
    unused: int = Field(default=100, ge=0, description="number of [unused…] entries to reserve")
    sample_reviews: int = Field(
        default=1_000_000, ge=1, description="train on about this many reviews"
    )


class VocabularyOptions(VocabularyConfig):
    """Options of model.vocabulary."""

    corpus: Path = Field(description="folder that corpus_job wrote")
    output: Path = Field(description="folder for vocab.txt and tokenizer.json")


class OriginOptions(Settings):
    """Options of model.origin."""

    place: str = Field(description=f"the published encoder: {FORMS}")
    generator: str | None = Field(
        default=None, description="published generator of an ELECTRA, in the same notation"
    )
    output: Path = Field(description="folder to copy it into")


class PretrainConfig(Settings):
    """What decides a pre-training besides its shards and the weights that it begins with."""

    recipe: RecipeName = Field(description="size of the model and length of its training")
    steps: int | None = Field(
        default=None, ge=1, description="optimizer steps, instead of the recipe's number"
    )
    budget: str | None = Field(
        default=None,
        description="instead of `steps`: a time (30min), or operations in matrix products "
        "(1.5e15flops)",
    )
    settings: dict[str, str] = Field(
        default={},
        description="any field of PretrainingConfig or AdaptationConfig (model/config.py), or of "
        "Architecture (model/architecture.py)",
    )


class TrainingResources(Settings):
    """Where and with what a training runs. Nothing here changes its result."""

    device: PretrainingDevice = Field(default="auto", description=f"{DEVICE}, xla-spmd all of them")
    processes: int | None = Field(
        default=None,
        ge=1,
        le=256,
        description="processes on this machine that share each batch: one for each GPU, or for "
        "each group of CPU cores; none: one",
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        description="CPU threads of each process; none: all cores, shared by the processes",
    )


ALL_CORES = TrainingResources()


class PretrainPaths(Settings):
    """What a pre-training reads, and where it writes."""

    shards: Path = Field(description="folder that beam_jobs.shards_job wrote")
    output: Path = Field(description="folder for checkpoints, metrics.jsonl and the model folders")
    validation: Path | None = Field(
        default=None,
        description="shards of the dev split; losses are measured on them every validate_every "
        "steps",
    )
    start_from: str | None = Field(
        default=None,
        description="weights to start from, which decide the shape: a folder that model.origin "
        f"wrote, or a published encoder ({FORMS})",
    )
    start_generator_from: Path | None = Field(
        default=None,
        description="transformers folder of the generator, if there is none beside `start_from`",
    )


class PretrainOptions(TrainingResources, PretrainConfig, PretrainPaths):
    """Options of model.pretrain."""


class ContrastiveConfig(Settings):
    """What decides the result of a contrastive adaptation; docs/results.md has what was tried."""

    seed: int = Field(default=0, ge=0, le=MAX_SEED, description="decides the order of the pairs")
    epochs: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="passes; none: until 10,000 pairs were seen, at most 3",
    )
    batch: int = Field(default=128, ge=2, le=65_536, description="pairs in one step")
    device_batch: int | None = Field(
        default=None,
        ge=1,
        description="pairs whose activations a device holds at once; fewer take less memory and a "
        "third more time, and change no negative; none: the batch",
    )
    learning_rate: float = Field(default=1e-4, gt=0, le=1, description="peak, of AdamW")
    warmup: float = Field(default=0.1, ge=0, le=1, description="share of the steps")
    weight_decay: float = Field(default=0.01, ge=0, le=1, description="of matrices")
    clip: float = Field(default=1.0, gt=0, description="largest global norm of the gradient")
    temperature: float = Field(
        default=0.05, gt=0, le=10, description="the cosines are divided by it"
    )
    title_tokens: int = Field(default=24, ge=4, le=65_535, description="of a title at most")
    body_tokens: int = Field(default=64, ge=4, le=65_535, description="of a body at most")
    precision: Precision = Field(default="auto", description=AUTO_PRECISION)
    log_every: int = Field(default=10, ge=1, description="steps")
    keep_checkpoints: int = Field(default=1, ge=1, description="number of checkpoints to keep")


CONTRASTIVE_VERSION = 2
"""Version of the output; raise it when the numbers of a step change."""
FREE_CONTRASTIVE_SETTINGS = {"device_batch", "log_every", "keep_checkpoints"}
"""These change how the work is cut up or what is written, not what is learned."""


class ContrastiveOptions(TrainingResources):
    """Options of model.contrastive."""

    encoder: Path = Field(
        description="encoder to adapt: a folder that model.origin wrote, or one of model.pretrain"
    )
    corpus: tuple[Path, ...] = Field(
        description="folders that corpus_job wrote; their pretrain splits give pairs"
    )
    output: Path = Field(description="folder for checkpoints, metrics.jsonl and the encoder")
    settings: dict[str, str] = Field(
        default={}, description="any field of ContrastiveConfig in model/options.py"
    )


class FittingConfig(Settings):
    """What decides a fine-tuning, whatever is fitted."""

    task: str = Field(description=TASK)
    seed: int = Field(
        default=0,
        ge=0,
        le=MAX_SEED,
        description="decides the head, the order, dropout and the training examples",
    )
    recipe: RecipeName | None = Field(
        default=None, description="take the fine-tuning settings of this recipe as defaults"
    )
    initializer_range: float | None = Field(
        default=None,
        gt=0,
        description="of random weights: standard deviation, drawn as transformers does; none: "
        "drawn as the pre-training of the architecture did, if its config.json says how",
    )
    settings: dict[str, str] = Field(
        default={}, description="fields of FinetuningSettings (model/config.py) and their values"
    )


class FinetuneOptions(FittingConfig):
    """Options of the fine-tuning."""

    encoder: str = Field(
        description="model folder or hub name; `random` (with `architecture`); `half` or "
        "`layers:N`: layers of `teacher`; or an arm (model/arms), with a colon and the encoder if "
        "it reads one, such as `joined:DIR`"
    )
    architecture: str | None = Field(
        default=None, description="for `random`: folder with the config and the tokenizer to use"
    )
    teacher: Path | None = Field(
        default=None, description="distil: also learn from the outputs of this fine-tuned folder"
    )
    parts: tuple[Path, ...] = Field(
        default=(), description="for `stack:` and an encoder: the fitted folders that it combines"
    )
    cache: Path | None = Field(
        default=None,
        description="folder in which tokens, and states of frozen encoders, are kept for other "
        "fine-tunings; none: not kept",
    )
    data: Path = Field(description="folder or file of the task's data")
    output: Path = Field(description="folder for the fine-tuned model")
    evaluation: Path | None = Field(
        default=None, description="also evaluate on test and write the evaluation into this folder"
    )
    learning_rate: tuple[float, ...] = Field(
        default=(), description="learning rates to try; the best on dev is kept"
    )
    device: Device = Field(default="auto", description=DEVICE)


class EvaluateOptions(Settings):
    """Options of model.evaluate."""

    model: Path = Field(description="folder that model.finetune wrote")
    task: str = Field(description=TASK)
    data: Path = Field(description="folder or file of the task's data")
    output: Path = Field(description="folder for predictions and metrics")
    split: Literal["train", "dev", "test"] = Field(
        default="test", description="split of the task to evaluate on"
    )
    device: Device = Field(default="auto", description=DEVICE)


class ExportOptions(Settings):
    """Options of model.export."""

    cells: tuple[str, ...] = Field(
        min_length=1,
        description="[ARM=]DIR: folders that model.finetune wrote; those of one arm differ in the "
        "seed",
    )
    evaluations: tuple[Path, ...] = Field(
        default=(),
        description="evaluations of the cells on test, in the same order; none: no test results",
    )
    task: str = Field(description=TASK)
    data: Path = Field(description="folder or file of the task's data")
    output: Path = Field(description="folder for the model")
    cache: Path | None = Field(
        default=None, description="folder of tokens and states that model.finetune filled"
    )
    target_accuracy: float | None = Field(
        default=None,
        gt=0.5,
        lt=1,
        description="least share of right answers, for example 0.97, that must be promised of what "
        "`score` calls decided; it writes ask where the model is less sure. Empty: no such column",
    )
