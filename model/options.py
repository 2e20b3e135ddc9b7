"""What the command line of each job takes, with meanings, units, bounds and defaults."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from beam_jobs.job.settings import Setting
from model.config import PresetName

SMALLEST_VOCABULARY = 200
"""Entries; fewer leave no room for words beside letters."""
DEV_REVIEWS = 20_000
"""Enough for the third digit of a rate."""

Device = Literal["auto", "cpu", "cuda", "xla"]
DEVICE = Setting("where it is computed: auto takes a GPU where there is one; a TPU is xla")
TASK = Setting(
    "its name: model/finetuning/tasks/README.md, or table:text=…,label=…", metavar="NAME"
)


@dataclass(frozen=True, kw_only=True)
class VocabularyOptions:
    """Options of model.vocabulary."""

    corpus: Annotated[Path, Setting("what corpus_job wrote", metavar="DIR")]
    output: Annotated[Path, Setting("where vocab.txt and tokenizer.json go", metavar="DIR")]
    size: Annotated[int, Setting("entries, special ones included", ge=SMALLEST_VOCABULARY)] = 50_000
    lower_case: Annotated[bool, Setting("fold case and accents")] = True
    strip_accents: Annotated[bool | None, Setting("remove accents; none: as --lower-case says")] = (
        None
    )
    unused: Annotated[int, Setting("[unused…] slots kept free for later", ge=0)] = 100
    sample_reviews: Annotated[int, Setting("train on about so many reviews", ge=1)] = 1_000_000
    compare: Annotated[
        tuple[str, ...],
        Setting("other vocab.txt files to measure on the dev split", metavar="FILE"),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class VocabularyFitOptions:
    """Options of model.vocabulary_fit."""

    corpus: Annotated[Path, Setting("what corpus_job made of a new dump", metavar="DIR")]
    vocabulary: Annotated[Path, Setting("what model.vocabulary wrote", metavar="DIR")]
    output: Annotated[Path, Setting("where fit.json goes", metavar="DIR")]
    split: Annotated[str, Setting("side of the corpus")] = "pretrain"
    reviews: Annotated[int, Setting("measure about so many", ge=1)] = DEV_REVIEWS
    unknown_rate: Annotated[
        float,
        Setting(
            "warn when the vocabulary's share of unknown words in the new dump is higher than it "
            "was in the first one by more than this",
            ge=0,
            le=1,
        ),
    ] = 0.005
    tokens_per_word: Annotated[
        float,
        Setting(
            "warn when tokens per word are more than they were by this share of it", ge=0, le=10
        ),
    ] = 0.1


@dataclass(frozen=True, kw_only=True)
class PretrainOptions:
    """Options of model.pretrain."""

    shards: Annotated[Path, Setting("folder made by beam_jobs.shards_job", metavar="DIR")]
    replay: Annotated[tuple[Path, ...], Setting("earlier shards to mix in", metavar="DIR")] = ()
    replay_ratio: Annotated[
        str, Setting("share of the sequences taken from the earlier shards")
    ] = "0.5"
    output: Annotated[
        Path, Setting("checkpoints, metrics.jsonl and the model folders", metavar="DIR")
    ]
    preset: Annotated[PresetName, Setting("size of the model and length of its training")]
    steps: Annotated[int | None, Setting("optimizer steps, instead of the preset's", ge=1)] = None
    budget: Annotated[
        str | None,
        Setting("instead of steps: a time (30min), or operations in matrix products (1.5e15flops)"),
    ] = None
    validation: Annotated[
        Path | None,
        Setting("shards of the dev split, measured every validate_every steps", metavar="DIR"),
    ] = None
    start_from: Annotated[
        Path | None,
        Setting(
            "weights to begin with: a transformers folder or a checkpoint of "
            "google-research/electra (folder or prefix)",
            metavar="DIR",
        ),
    ] = None
    start_generator_from: Annotated[
        Path | None,
        Setting("the generator's transformers folder; with --start-from", metavar="DIR"),
    ] = None
    device: Annotated[Literal["auto", "cpu", "cuda", "xla", "xla-spmd"], DEVICE] = "auto"
    threads: Annotated[int | None, Setting("threads of the CPU; none: all cores", ge=1)] = None
    tensorboard: Annotated[
        bool, Setting("also write TensorBoard files at the end", is_flag=True)
    ] = False
    settings: Annotated[
        tuple[str, ...],
        Setting(
            "any field of PretrainingConfig or Architecture (model/config.py); may be repeated",
            option="--set",
            metavar="FIELD=VALUE",
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class FinetuneOptions:
    """Options of the fine-tuning."""

    encoder: Annotated[
        str,
        Setting(
            "model folder or hub name; `random` (with --architecture); `half`: every second layer "
            "of --teacher",
            metavar="DIR|random|half",
        ),
    ]
    architecture: Annotated[
        str | None,
        Setting("for `random`: folder whose config and tokenizer to use", metavar="DIR"),
    ] = None
    teacher: Annotated[
        Path | None,
        Setting("distil: learn from this fine-tuned folder's outputs too", metavar="DIR"),
    ] = None
    teacher_outputs: Annotated[
        Path | None,
        Setting(
            "where teachers' outputs are kept for all their students; none: --output",
            metavar="DIR",
        ),
    ] = None
    task: Annotated[str, TASK]
    data: Annotated[Path, Setting("the task's data", metavar="DIR")]
    output: Annotated[Path, Setting("the fine-tuned model folder", metavar="DIR")]
    evaluation: Annotated[
        Path | None, Setting("also evaluate on test and write it here", metavar="DIR")
    ] = None
    seed: Annotated[int, Setting("head, order, dropout, training examples")] = 0
    preset: Annotated[
        PresetName | None, Setting("start from this preset's fine-tuning defaults")
    ] = None
    learning_rate: Annotated[
        tuple[float, ...], Setting("the grid; best on dev is kept", metavar="RATE")
    ] = ()
    device: Annotated[Device, DEVICE] = "auto"
    settings: Annotated[
        tuple[str, ...],
        Setting(
            "any field of FinetuningSettings (model/config.py); may be repeated",
            option="--set",
            metavar="FIELD=VALUE",
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Options of model.evaluate."""

    model: Annotated[Path, Setting("a folder made by model.finetune", metavar="DIR")]
    task: Annotated[str, TASK]
    data: Annotated[Path, Setting("the task's data", metavar="DIR")]
    output: Annotated[Path, Setting("folder of predictions and metrics", metavar="DIR")]
    split: Annotated[
        Literal["train", "dev", "test", "submission"],
        Setting(
            "`submission` (GLUE) writes the file the official site takes, from the test set "
            "without labels"
        ),
    ] = "test"
    device: Annotated[Device, DEVICE] = "auto"


@dataclass(frozen=True, kw_only=True)
class ScorerOptions:
    """Options of model.scorer."""

    model: Annotated[Path, Setting("a folder made by model.finetune", metavar="DIR")]
    output: Annotated[Path, Setting("folder of the exported program", metavar="DIR")]


@dataclass(frozen=True, kw_only=True)
class SearchOptions(FinetuneOptions):
    """Options of model.finetuning.search."""

    space: Annotated[Path, Setting("JSON: setting → choices or range", metavar="FILE")]
    trials: Annotated[int, Setting("fine-tunings tried; bad ones are pruned", ge=1)] = 20


@dataclass(frozen=True, kw_only=True)
class LatencyOptions:
    """Options of model.evaluation.latency."""

    model: Annotated[Path, Setting("a folder made by model.finetune", metavar="DIR")]
    task: Annotated[str, TASK]
    data: Annotated[Path, Setting("the task's data", metavar="DIR")]
    output: Annotated[Path, Setting("JSON with the result", metavar="FILE")]
    threads: Annotated[int, Setting("threads of the CPU", ge=1)] = 1
    device: Annotated[Device, DEVICE] = "auto"


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Options of model.report.report."""

    study: Annotated[Path, Setting("JSON: stages and evaluated cells", metavar="FILE")]
    output: Annotated[Path, Setting("folder of the report", metavar="DIR")]
