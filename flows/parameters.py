"""Everything a user sets: the form in the Prefect UI, `--set section.field=value`, and the validation of both.

Every field has a description, bounds and a default that works; 0 or an empty list mean "as the preset says", because
forms have no way to say nothing. Sections and fields appear in the order written here.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from beam_jobs.command import UserMistake

PresetName = Literal["tiny", "small", "base", "large", "amazon-base"]
Device = Literal["auto", "cpu", "cuda", "xla"]
Arm = Literal["pre-trained", "random", "champion"]
Task = Literal["polarity", "stars"]
Seed = Annotated[int, Field(ge=0, lt=2**31)]


class Section(BaseModel):
    """A group of the form; an unknown field is an error, not a silent typo."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Dump(Section):
    """The reviews to adapt to, as they were published."""

    paths: list[str] = Field(
        default=["sample:20000"],
        min_length=1,
        description="Files or globs of reviews: JSON lines (2014, 2018, 2023 releases), CSV, TSV, fastText; also gz. "
        "`sample:20000` writes a synthetic dump of 20,000 reviews",
    )

    @field_validator("paths")
    @classmethod
    def _nothing_empty(cls, paths: list[str]) -> list[str]:
        for path in paths:
            if not path.strip():
                raise ValueError("an empty path; name a file, a glob or sample:NUMBER")
            if path.startswith("sample:") and not path.removeprefix("sample:").isdecimal():
                raise ValueError(f"{path!r}: write sample:NUMBER, for example sample:20000")
        return paths


class Corpus(Section):
    """How reviews become sentences, and who may see them."""

    split: str = Field(
        default="pretrain=80,train=8,dev=4,test=8",
        pattern=r"^pretrain=\d+,train=\d+,dev=\d+,test=\d+$",
        description="Percent of the distinct texts in each split; equal texts never fall on two sides",
    )
    seed: Seed = Field(default=0, description="Decides which text falls into which split")
    withhold: list[str] = Field(
        default=[],
        description="Files of evaluation texts that must never reach pre-training, besides the corpus's own test split",
    )
    workers: int = Field(default=0, ge=0, le=1024, description="Processes of the Beam job; 0: one per core")


class Vocabulary(Section):
    """WordPiece, trained on the pretrain split."""

    size: int = Field(
        default=0, ge=0, le=200_000, description="Entries; 0: as the preset says (tiny 4,000, amazon-base 50,000)"
    )
    lower_case: bool = Field(default=True, description="Fold case and accents")


class Shards(Section):
    """Reviews packed into sequences of token ids."""

    max_length: int = Field(default=0, ge=0, le=512, description="Tokens in one sequence; 0: as the preset says")


class Pretraining(Section):
    """ELECTRA: a generator proposes tokens, the discriminator tells which were replaced."""

    steps: int = Field(default=0, ge=0, le=10_000_000, description="Optimizer steps; 0: as the preset says")
    device: Device = Field(default="auto", description="auto takes a GPU or TPU where there is one")
    seed: Seed = Field(default=0, description="Of the weights, the order of the sequences and the masked positions")
    settings: dict[str, str] = Field(
        default={},
        description='Any other setting of pre-training or of the architecture, for example {"learning_rate": "5e-4"}',
    )


class Finetuning(Section):
    """The study: arms × tasks × seeds, each with the same care."""

    arms: list[Arm] = Field(
        default=["pre-trained", "random"],
        min_length=1,
        description="Where the encoder comes from; champion: the one in the MLflow registry",
    )
    tasks: list[Task] = Field(
        default=["polarity", "stars"], min_length=1, description="polarity: 1–2 against 4–5 stars; stars: 1 to 5"
    )
    seeds: list[Seed] = Field(default=[0, 1, 2], min_length=1, description="One fine-tuning each")
    learning_rates: list[Annotated[float, Field(gt=0, lt=1)]] = Field(
        default=[], description="Each is tried and the best on dev kept; empty: as the preset says"
    )
    at_once: int = Field(default=2, ge=1, le=64, description="Fine-tunings that run side by side, one thread each")


class Promotion(Section):
    """Whether the model of this run may become the champion of the MLflow registry."""

    mode: Literal["off", "automatic", "ask"] = Field(
        default="off",
        description="off: not registered; automatic: by the rule below; ask: the run waits for a person's approval",
    )
    tasks: list[Task] = Field(
        default=["polarity"], min_length=1, description="It must be better than the champion on each of these"
    )
    margin: float = Field(
        default=0.0, ge=0, le=100, description="Points of accuracy; more than 0: not worse by more than that is enough"
    )


class StudyChoice(Section):
    """Which comparison is made."""

    file: str = Field(
        default="losses", min_length=1, description="A study file (YAML), or a shipped one: losses, search, sizes, …"
    )
    variables: dict[str, str] = Field(default={}, description='Fills ${name} in the file, for example {"reviews": "…"}')
    settings: dict[str, str] = Field(
        default={}, description='Instead of what the file says for all arms and tasks, for example {"seeds": "0,1"}'
    )
    general_text: list[str] = Field(
        default=[], description="Files of text that is not reviews, for the studies that pre-train on it too"
    )
    at_once: int = Field(default=2, ge=1, le=64, description="Cells that run side by side, one thread each")


class Parameters(Section):
    """All of it: what one run of the graph is asked to do."""

    dump: Dump = Dump()
    preset: PresetName = "tiny"
    corpus: Corpus = Corpus()
    vocabulary: Vocabulary = Vocabulary()
    shards: Shards = Shards()
    pretraining: Pretraining = Pretraining()
    finetuning: Finetuning = Finetuning()
    promotion: Promotion = Promotion()
    store: str = "store"


def from_settings(settings: Sequence[str] = (), **given: Any) -> Parameters:
    """Parameters from `--set section.field=value` texts and fields known by name; a mistake names the field."""
    values: dict[str, Any] = {name: dict(v) if isinstance(v, dict) else v for name, v in given.items()}
    for setting in settings:
        path, equals, text = setting.partition("=")
        section, _, name = path.partition(".")
        if not equals:
            raise UserMistake(f"--set {setting}: write --set section.field=value")
        if not name:
            values[section] = text
        else:
            _set(values, section, name, text)
    try:
        return Parameters.model_validate(values)
    except ValidationError as invalid:
        raise UserMistake(_in_one_line(invalid)) from None


def _set(values: dict[str, Any], section: str, name: str, text: str) -> None:
    """`pretraining.anything` that is no field of the form is a setting of the trainer's."""
    model = Parameters.model_fields[section].annotation if section in Parameters.model_fields else None
    group = values.setdefault(section, {})
    if not isinstance(group, dict) or not isinstance(model, type) or not issubclass(model, Section):
        known = sorted(n for n, f in Parameters.model_fields.items() if isinstance(f.annotation, type))
        raise UserMistake(f"--set {section}.{name}: no such section; there are {', '.join(known)}")
    if name not in model.model_fields and model is Pretraining:
        group.setdefault("settings", {})[name] = text
    else:
        group[name] = _read(model, name, text)


def _read(model: type[Section], name: str, text: str) -> Any:
    """Lists may be written a,b,c; everything else is left to pydantic, which reads numbers and booleans from text."""
    if name not in model.model_fields:
        raise UserMistake(
            f"--set {model.__name__.lower()}.{name}: no such field; there are {', '.join(model.model_fields)}"
        )
    if text[:1] in "[{" and text:
        return json.loads(text)
    is_list = "list" in str(model.model_fields[name].annotation)
    return [part.strip() for part in text.split(",") if part.strip()] if is_list else text


def _in_one_line(invalid: ValidationError) -> str:
    """Every wrong field with what was given and what is expected."""
    lines = []
    for error in invalid.errors():
        where = ".".join(str(part) for part in error["loc"])
        lines.append(f"{where}: {error['msg'].removeprefix('Value error, ')} (given: {error['input']!r})")
    return "; ".join(lines)


def preset_names() -> tuple[str, ...]:
    return get_args(PresetName)
