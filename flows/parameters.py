"""Everything a user sets: the form in the Prefect UI, `--set section.field=value`, and the validation of both.

Every field has a description, bounds and a default that works; 0 or an empty list mean "as the preset says", because
forms have no way to say nothing. Sections and fields appear in the order written here.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from beam_jobs.command import UserMistake
from model.evaluation.study_file import Seed, Study

PresetName = Literal["tiny", "small", "base", "large", "amazon-base"]
Device = Literal["auto", "cpu", "cuda", "xla"]
Arm = Literal["pre-trained", "random", "champion", "base", "published"]
Task = Literal["polarity", "stars"]
MOST_AT_ONCE = 64


class Section(BaseModel):
    """A group of the form; an unknown field is an error, not a silent typo."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Dump(Section):
    """The reviews to adapt to, as they were published."""

    paths: list[str] = Field(
        default=["sample:20000"],
        min_length=1,
        description="Files or globs of reviews: JSON lines (2014, 2018, 2023 releases), CSV, TSV, fastText; "
        "also gz; gs:// and s3:// too. `sample:20000` writes a synthetic dump of 20,000 reviews",
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
        description="Where the encoder comes from; champion: the one in the MLflow registry; base: what a new dump "
        "was added to; published: the one named below",
    )
    published: str = Field(
        default="",
        description="Of the arm `published`: a transformers folder, or a hub name that is in this machine's cache",
    )
    tasks: list[Task] = Field(
        default=["polarity", "stars"], min_length=1, description="polarity: 1–2 against 4–5 stars; stars: 1 to 5"
    )
    seeds: list[Seed] = Field(default=[0, 1, 2], min_length=1, description="One fine-tuning each")
    learning_rates: list[Annotated[float, Field(gt=0, lt=1)]] = Field(
        default=[], description="Each is tried and the best on dev kept; empty: as the preset says"
    )
    at_once: int = Field(
        default=2, ge=1, le=MOST_AT_ONCE, description="Fine-tunings that run side by side, one thread each"
    )

    @field_validator("arms", "tasks", "seeds", "learning_rates")
    @classmethod
    def _nothing_twice(cls, chosen: list[Any]) -> list[Any]:
        """A seed counted twice would make intervals narrower than they are."""
        for value in chosen:
            if chosen.count(value) > 1:
                raise ValueError(f"{value} is named twice")
        return chosen


class Increment(Section):
    """What a new dump is added to, and how training goes on."""

    base: str = Field(
        default="last",
        min_length=1,
        description="Fingerprint of a pre-training or of a report (`amazon-electra runs`), or how it begins; champion: "
        "the one in the MLflow registry; last: the newest model of the store that has not seen this dump",
    )
    replay_ratio: float = Field(
        default=0.5, ge=0, le=0.95, description="Share of the sequences taken from the earlier dumps"
    )
    epochs: float = Field(
        default=0.0, ge=0, le=1000, description="How often the new dump is gone through; 0: as often as the first was"
    )
    steps: int = Field(default=0, ge=0, le=10_000_000, description="Optimizer steps; 0: as many as the epochs need")
    warmup: float = Field(
        default=0.1, ge=0, le=1, description="Share of the steps in which the learning rate rises again from nothing"
    )
    device: Device = Field(default="auto", description="auto takes a GPU or TPU where there is one")
    seed: Seed = Field(default=0, description="Of the order of the sequences and the masked positions")
    settings: dict[str, str] = Field(
        default={}, description='Where pre-training is to differ from the base, for example {"learning_rate": "1e-4"}'
    )
    workers: int = Field(default=0, ge=0, le=1024, description="Processes of the Beam jobs; 0: one per core")
    unknown_rate: float = Field(
        default=0.005,
        ge=0,
        le=1,
        description="Warn when the vocabulary's share of unknown words in the new dump is higher than it was in the "
        "first one by more than this",
    )
    tokens_per_word: float = Field(
        default=0.1, ge=0, le=10, description="Warn when tokens per word are more than they were by this share of it"
    )


class Comparison(Finetuning):
    """The study: the new model against the champion (or its base) and a published one, on the first dump's test set."""

    arms: list[Arm] = Field(
        default=["pre-trained", "champion", "published"],
        min_length=1,
        description="pre-trained: the new model; champion: the one in the registry, the base where there is none; "
        "published: the one named below, if one is",
    )


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
    own: Study = Field(
        default=Study(),
        description="Instead of a file, as soon as one field says something: the same fields, filled in here",
    )
    variables: dict[str, str] = Field(default={}, description='Fills ${name} in the file, for example {"reviews": "…"}')
    settings: dict[str, str] = Field(
        default={}, description='Instead of what the file says for all arms and tasks, for example {"seeds": "0,1"}'
    )
    general_text: list[str] = Field(
        default=[], description="Files of text that is not reviews, for the studies that pre-train on it too"
    )
    at_once: int = Field(default=2, ge=1, le=MOST_AT_ONCE, description="Cells that run side by side, one thread each")

    @property
    def is_own(self) -> bool:
        """Filled in here, rather than read from a file."""
        return self.own != Study()


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


class Addition(Section):
    """What a run that adds a new dump is asked to do; everything else it has from its base."""

    dump: Dump = Dump()
    increment: Increment = Increment()
    finetuning: Comparison = Comparison()
    promotion: Promotion = Promotion()
    store: str = "store"

    def based_on(self, base: str) -> "Addition":
        """The same with another base."""
        return self.model_copy(update={"increment": self.increment.model_copy(update={"base": base})})


Form = TypeVar("Form", Parameters, Addition)


def from_settings(settings: Sequence[str] = (), **given: Any) -> Parameters:
    """Parameters of a whole run; see `filled`."""
    return filled(Parameters, settings, **given)


def filled(form: type[Form], settings: Sequence[str] = (), **given: Any) -> Form:
    """A form from `--set section.field=value` texts and fields known by name; a mistake names the field."""
    values: dict[str, Any] = {name: dict(v) if isinstance(v, dict) else v for name, v in given.items()}
    for setting in settings:
        path, equals, text = setting.partition("=")
        section, _, name = path.partition(".")
        if not equals:
            raise UserMistake(f"--set {setting}: write --set section.field=value")
        if not name:
            values[section] = text
        else:
            _set(form, values, section, name, text)
    try:
        return form.model_validate(values)
    except ValidationError as invalid:
        raise UserMistake(_in_one_line(invalid)) from None


def settings_of(form: Section) -> list[str]:
    """`section.field=value` for every field of a section that is not its default; `filled` reads them back."""
    found = []
    for section, described in type(form).model_fields.items():
        chosen, default = getattr(form, section), described.default
        for name in type(chosen).model_fields if isinstance(chosen, Section) else ():
            value = getattr(chosen, name)
            if value == getattr(default, name):
                continue
            texts = {f"{section}.{key}": text for key, text in value.items()} if isinstance(value, dict) else {}
            texts = texts or {f"{section}.{name}": value if isinstance(value, str) else json.dumps(value)}
            found += [f"{field}={text}" for field, text in texts.items()]
    return found


def _set(form: type[Section], values: dict[str, Any], section: str, name: str, text: str) -> None:
    """`pretraining.anything` that is no field of the form is a setting of the trainer's."""
    model = form.model_fields[section].annotation if section in form.model_fields else None
    group = values.setdefault(section, {})
    if not isinstance(group, dict) or not isinstance(model, type) or not issubclass(model, Section):
        known = sorted(n for n, f in form.model_fields.items() if isinstance(f.annotation, type))
        raise UserMistake(f"--set {section}.{name}: no such section; there are {', '.join(known)}")
    if name not in model.model_fields and model in (Pretraining, Increment):
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
