"""Everything a user sets: the form in the Prefect UI, which `--set section.field=value` fills too,
and its validation.

Every field has a description, bounds and a default that works; 0 or an empty list mean "as the
preset says", because forms have no way to say nothing. Sections and fields appear in the order
written here.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from beam_jobs.config import CorpusOptions, ShardsOptions
from flows.configuration.addresses import Address
from flows.configuration.dump import Dump, Reading
from flows.configuration.sections import MOST_AT_ONCE, Section, make_form_field, make_preset_field
from flows.configuration.study_file import Seed
from model.config import PresetName, PretrainingConfig
from model.options import Device, FinetuneOptions, VocabularyFitOptions, VocabularyOptions
from model.presets import PRESETS, apply_settings, check_settings_are_read

Arm = Literal["pre-trained", "random", "champion", "base", "published"]
Task = Literal["polarity", "stars"]
REGISTERED: dict[str, Any] = {"needs": {"mode": ["automatic", "ask"]}}
HUB_NAME = r"[\w-][\w.-]*(/[\w-][\w.-]*)?"


STORE: Any = Field(
    default="store", description="Folder of all results; a stage it holds is not made again."
)


class Corpus(Section):
    """How reviews become sentences, and who may see them."""

    split: str = Field(
        default="pretrain=80,train=8,dev=4,test=8",
        pattern=r"^pretrain=\d+,train=\d+,dev=\d+,test=\d+$",
        description="Percent of the distinct texts in each split; equal texts share a side",
    )
    seed: Seed = Field(default=0, description="Decides which text falls into which split")
    withhold: list[Address] = Field(
        default=[],
        description="Files of evaluation texts that must never reach pre-training, besides the "
        "corpus's own test split",
    )
    languages: list[Annotated[str, Field(pattern=r"^[a-z]{2}$")]] = Field(
        default=[], description="Keep only reviews in these, for example en; empty: all. Slow"
    )
    near_duplicates: float = make_form_field(CorpusOptions, "near_duplicates", default=0.0)
    withhold_own: bool = make_form_field(CorpusOptions, "withhold_own")
    workers: int = Field(
        default=0, ge=0, le=1024, description="Processes of the Beam job; 0: one per core"
    )

    @field_validator("split")
    @classmethod
    def _check_shares(cls, split: str) -> str:
        shares = [int(part.partition("=")[2]) for part in split.split(",")]
        if sum(shares) != 100:
            raise ValueError(f"the shares add up to {sum(shares)}, not to 100")
        if not shares[0]:
            raise ValueError(
                "pretrain must be at least 1: the vocabulary and the encoder come from it"
            )
        return split


class Vocabulary(Section):
    """WordPiece, trained on the pretrain split."""

    size: int = make_preset_field(
        VocabularyOptions,
        "size",
        le=200_000,
        description="Entries; 0: as the preset says (tiny 4,000, amazon-base 50,000)",
    )
    lower_case: bool = make_form_field(VocabularyOptions, "lower_case")


class Shards(Section):
    """Reviews packed into sequences of token ids."""

    max_length: int = make_preset_field(ShardsOptions, "max_length", le=512)
    long_length: int = Field(
        default=0,
        ge=0,
        le=512,
        description="Tokens of the sequences in the last tenth of pre-training (BERT had 512 after "
        "128); 0: those of max_length to the end. The share is the setting long_share",
    )


class Pretraining(Section):
    """ELECTRA: a generator proposes tokens, the discriminator tells which were replaced."""

    steps: int = make_preset_field(PretrainingConfig, "steps", le=10_000_000)
    device: Device = make_form_field(FinetuneOptions, "device")
    seed: Seed = make_form_field(PretrainingConfig, "seed", le=None)
    settings: dict[str, str] = Field(
        default={},
        description="Any other setting of pre-training or of the architecture, for example "
        '{"learning_rate": "5e-4"}',
    )


class Finetuning(Section):
    """The study: arms × tasks × seeds, each with the same care."""

    arms: list[Arm] = Field(
        default=["pre-trained", "random"],
        min_length=1,
        description="Where the encoder comes from; champion: the one in the MLflow registry; base: "
        "what a new dump "
        "was added to; published: the one named below",
    )
    published: Address = Field(
        default="",
        description="Of the arm `published`: a transformers folder, or a hub name in the cache",
        json_schema_extra={"needs": {"arms": ["published"]}},
    )
    tasks: list[Task] = Field(
        default=["polarity", "stars"],
        min_length=1,
        description="polarity: 1–2 against 4–5 stars; stars: 1 to 5",
    )
    seeds: list[Seed] = Field(default=[0, 1, 2], min_length=1, description="One fine-tuning each")
    learning_rates: list[Annotated[float, Field(gt=0, lt=1)]] = Field(
        default=[], description="Each is tried and the best on dev kept; empty: as the preset says"
    )
    at_once: int = Field(
        default=2,
        ge=1,
        le=MOST_AT_ONCE,
        description="Fine-tunings that run side by side, one thread each",
    )

    @field_validator("arms", "tasks", "seeds", "learning_rates")
    @classmethod
    def _refuse_duplicates(cls, chosen: list[Any]) -> list[Any]:
        """Refuse what is named twice: a seed counted twice would make intervals narrower than they
        are.
        """
        for value in chosen:
            if chosen.count(value) > 1:
                raise ValueError(f"{value} is named twice")
        return chosen

    @field_validator("published")
    @classmethod
    def _check_published(cls, name: str) -> str:
        folder = Path(name).expanduser()
        if name.startswith(("/", ".", "~")) and not folder.is_dir():
            raise ValueError(f"no folder {name}")
        if name and folder.is_dir() and not (folder / "config.json").exists():
            raise ValueError(f"{name} is no transformers folder, it has no config.json")
        if name and not folder.is_dir() and not re.fullmatch(HUB_NAME, name):
            raise ValueError(
                f"{name} is no folder, and no name on the hub: those are like google/electra-small"
            )
        return name

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        self.check_arms()
        return self

    def check_arms(self) -> None:
        """Raise ValueError where an arm, or all of them, would have no encoder."""
        if "published" in self.arms and not self.published:
            raise ValueError(
                "finetuning.published is empty: name the model of the arm `published`, or leave it "
                "out"
            )
        if {"champion", "base"}.issuperset(self.arms):
            raise ValueError(
                "finetuning.arms: champion and base may be nobody; name pre-trained, random or "
                "published"
            )


class Increment(Section):
    """What a new dump is added to, and how training goes on."""

    base: str = Field(
        default="last",
        min_length=1,
        description="Fingerprint of a pre-training or of a report (`amazon-electra runs`), or how "
        "it begins; champion: "
        "the one in the MLflow registry; last: the newest model of the store that has not seen "
        "this dump",
    )
    replay_ratio: float = Field(
        default=0.5,
        ge=0,
        le=0.95,
        description="Share of the sequences taken from the earlier dumps",
    )
    epochs: float = Field(
        default=0.0,
        ge=0,
        le=1000,
        description="How often the new dump is gone through; 0: as often as the first was",
        json_schema_extra={"needs": {"steps": [0]}},
    )
    steps: int = Field(
        default=0, ge=0, le=10_000_000, description="Optimizer steps; 0: as many as the epochs need"
    )
    warmup: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Share of the steps in which the learning rate rises again from nothing",
    )
    device: Device = make_form_field(FinetuneOptions, "device")
    seed: Seed = Field(
        default=0, description="Of the order of the sequences and the masked positions"
    )
    settings: dict[str, str] = Field(
        default={},
        description='Where pre-training is to differ from the base, for example {"learning_rate": '
        '"1e-4"}',
    )

    workers: int = Field(
        default=0, ge=0, le=1024, description="Processes of the Beam jobs; 0: one per core"
    )
    unknown_rate: float = make_form_field(VocabularyFitOptions, "unknown_rate")
    tokens_per_word: float = make_form_field(VocabularyFitOptions, "tokens_per_word")


class Comparison(Finetuning):
    """The study: the new model against champion or base and a published one, on old test sets."""

    arms: list[Arm] = Field(
        default=["pre-trained", "champion", "published"],
        min_length=1,
        description="pre-trained: the new model; champion: the one in the registry, the base where "
        "there is none; "
        "published: the one named below, if one is",
    )

    def check_arms(self) -> None:
        """Raise ValueError where `published` is the only arm and names nothing.

        There always is a champion, the base if no other; a published model need not be.
        """
        if self.arms == ["published"] and not self.published:
            raise ValueError("finetuning.published is empty: name the model of the arm `published`")


class Promotion(Section):
    """Whether the model of this run may become the champion of the MLflow registry."""

    mode: Literal["off", "automatic", "ask"] = Field(
        default="off",
        description="Registered, the model is kept for `score`. off: not registered; automatic: "
        "champion by the rule below; ask: a person approves",
    )
    tasks: list[Task] = Field(
        default=["polarity"],
        min_length=1,
        description="It must be better than the champion on each of these",
        json_schema_extra=REGISTERED,
    )
    margin: float = Field(
        default=0.0,
        ge=0,
        le=100,
        description="Points of accuracy; more than 0: not worse by more than that is enough",
        json_schema_extra=REGISTERED,
    )


def check_trainer_settings(
    preset: PresetName, chosen: "Pretraining | Increment", section: str
) -> None:
    """Raise ValueError for settings of the trainer that are wrong, that the form has a field of
    its own for, or that nothing reads.
    """
    for name in chosen.settings:
        if name in type(chosen).model_fields:
            raise ValueError(f"{section}.settings: {name}: write it as {section}.{name}")
    try:
        check_settings_are_read(apply_settings(PRESETS[preset], chosen.settings), chosen.settings)
    except ValueError as wrong:
        raise ValueError(f"{section}.settings: {wrong}") from None


def check_promotion(study: Finetuning, promotion: Promotion) -> None:
    """Raise ValueError where the study could not say what the promotion asks: it would be known
    only at the end.
    """
    if promotion.mode == "off":
        return
    if "pre-trained" not in study.arms:
        raise ValueError(f"promotion.mode={promotion.mode} needs pre-trained among finetuning.arms")
    if missing := [task for task in promotion.tasks if task not in study.tasks]:
        raise ValueError(f"promotion.tasks: {', '.join(missing)} is not among finetuning.tasks")


class RunTemplate(Section):
    """What a whole run is asked to do, whatever the dump."""

    dump: Reading = Reading()
    preset: PresetName = Field(
        default="tiny",
        description="Size of the model and length of its training; every number of it is in "
        "model/presets.py.",
    )
    corpus: Corpus = Corpus()
    vocabulary: Vocabulary = Vocabulary()
    shards: Shards = Shards()
    pretraining: Pretraining = Pretraining()
    finetuning: Finetuning = Finetuning()
    promotion: Promotion = Promotion()

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        check_trainer_settings(self.preset, self.pretraining, "pretraining")
        check_promotion(self.finetuning, self.promotion)
        return self


class Parameters(RunTemplate):
    """All of it: what one run of the graph is asked to do."""

    dump: Dump = Dump()
    store: str = STORE


class AdditionTemplate(Section):
    """What a run that adds a dump is asked to do, whatever the dump; all else is the base's."""

    dump: Reading = Reading()
    increment: Increment = Increment()
    finetuning: Comparison = Comparison()
    promotion: Promotion = Promotion()

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        check_trainer_settings("tiny", self.increment, "increment")  # the base may say otherwise
        check_promotion(self.finetuning, self.promotion)
        return self


class Addition(AdditionTemplate):
    """What a run that adds a new dump is asked to do; everything else it has from its base."""

    dump: Dump = Dump()
    store: str = STORE

    def replace_base(self, base: str) -> "Addition":
        """Return the same form with another base."""
        increment = self.increment.model_copy(update={"base": base})
        return self.model_copy(update={"increment": increment})


class AdditionParameters(Parameters):
    """What an addition comes to once its base is known: all that its form leaves out is the
    base's.
    """

    increment: Increment = Increment()
    finetuning: Comparison = Comparison()

    @property
    def form(self) -> Addition:
        """Return what was asked for."""
        return Addition(**{name: getattr(self, name) for name in Addition.model_fields})
