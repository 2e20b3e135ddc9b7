"""Everything a user sets: the form in the Prefect UI, which `--set section.field=value` fills too,
and its validation.

Every field has a description, bounds and a default that works; 0 or an empty list mean "as the
preset says", because forms have no way to say nothing. Sections and fields appear in the order
written here.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from beam_jobs.config import CorpusOptions, ShardsOptions
from beam_jobs.core.settings import Settings
from flows.configuration.addresses import Address
from flows.configuration.comparison import (
    Arm,
    Comparison,
    Finetuning,
    Promotion,
    check_promotion,
)
from flows.configuration.dump import Dump, Reading
from flows.configuration.engine import Engine
from flows.configuration.origin_place import Place, find_contradictions
from flows.configuration.sections import make_form_field, make_preset_field
from flows.configuration.study_file import Seed
from model.config import PresetName, PretrainingConfig
from model.options import (
    Device,
    FinetuneOptions,
    PretrainingDevice,
    PretrainOptions,
    VocabularyFitOptions,
    VocabularyOptions,
)
from model.presets import (
    PRESETS,
    apply_settings,
    check_start_is_not_needed,
)

STORE: Any = Field(
    default="store",
    description="Folder of all results, also s3://BUCKET/FOLDER or gs://BUCKET/FOLDER; a stage it "
    "holds is not made again.",
)


class Corpus(Settings):
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


class Vocabulary(Settings):
    """WordPiece, trained on the pretrain split, or that of the encoder which is adapted."""

    source: Literal["auto", "keep", "new"] = Field(
        default="auto",
        description="keep: that of pretraining.start_from; new: trained on the dump; auto: kept "
        "where pre-training starts from a published encoder, else new",
    )
    size: int = make_preset_field(
        VocabularyOptions,
        "size",
        le=200_000,
        description="Entries; 0: as the preset says (tiny 4,000, amazon-base 50,000)",
    )
    lower_case: bool = make_form_field(VocabularyOptions, "lower_case")


class Shards(Settings):
    """Reviews packed into sequences of token ids."""

    max_length: int = make_preset_field(ShardsOptions, "max_length", le=512)


class Pretraining(Settings):
    """ELECTRA: a generator proposes tokens, the discriminator tells which were replaced. Of a
    published encoder what suits its weights.
    """

    start_from: Place = Field(
        default="",
        description="Published encoder whose weights, shape and vocabulary it starts with: a "
        "folder, a name on the hub (org/name@REVISION), models:/NAME@ALIAS or package:MODULE; "
        "empty: random weights",
    )
    start_generator_from: Place = Field(
        default="",
        description="Published generator of the ELECTRA discriminator in start_from, a place "
        "likewise; empty: the first layers of start_from, where a generator is trained",
    )
    general_text: list[Address] = Field(
        default=[],
        description="Files of text that is not reviews, of which a share is mixed in so that less "
        "of what start_from knows is forgotten",
    )
    replay_ratio: float = Field(
        default=0.25,
        ge=0.01,
        le=0.95,
        description="Share of the sequences taken from general_text, if there is some",
    )
    steps: int = make_preset_field(PretrainingConfig, "steps", le=10_000_000)
    device: PretrainingDevice = make_form_field(PretrainOptions, "device")
    processes: int = make_form_field(
        PretrainOptions,
        "processes",
        default=1,
        description="Processes of the worker's machine that share each batch: one for each GPU, or "
        "for some cores of the CPU",
    )
    seed: Seed = make_form_field(PretrainingConfig, "seed", le=None)
    settings: dict[str, str] = Field(
        default={},
        description="Any other setting of pre-training or of the architecture, for example "
        '{"learning_rate": "5e-4"}',
    )

    @property
    def finetuning_device(self) -> Device:
        """Return the device of what is fine-tuned: one core where pre-training takes several."""
        return "xla" if self.device == "xla-spmd" else self.device


class Increment(Settings):
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

    @model_validator(mode="after")
    def _check_length(self) -> Self:
        if self.steps and self.epochs:
            raise ValueError("give steps or epochs, not both")
        return self


def check_trainer_settings(
    preset: PresetName,
    chosen: "Pretraining | Increment",
    section: str,
    has_start: bool,
) -> None:
    """Raise ValueError for settings of the trainer that are wrong, that the form has a field of
    its own for, or that need loaded weights where there are none.
    """
    for name in chosen.settings:
        if name in type(chosen).model_fields:
            raise ValueError(f"{section}.settings: {name}: write it as {section}.{name}")
    try:
        apply_settings(PRESETS[preset], chosen.settings)
        if not has_start:
            check_start_is_not_needed(chosen.settings)
    except ValueError as wrong:
        raise ValueError(f"{section}.settings: {wrong}") from None


def check_shared_batch(preset: PresetName, chosen: "Pretraining") -> None:
    """Raise ValueError where the processes of a pre-training cannot share its batch."""
    batch = apply_settings(PRESETS[preset], chosen.settings).pretraining.batch
    if chosen.device.startswith("xla") and chosen.processes > 1:
        raise ValueError("pretraining.processes: one process drives all cores of a TPU host")
    if batch % chosen.processes:
        raise ValueError(
            f"pretraining.processes: {chosen.processes} do not divide the batch of {batch}"
        )


class RunTemplate(Settings):
    """What a whole run is asked to do, whatever the dump."""

    dump: Reading = Reading()
    preset: PresetName = Field(
        default="tiny",
        description="Size of the model and length of its training; every number of it is in "
        "model/presets.py. From random weights tiny is for the sample and for trying: on real "
        "reviews, below 64 million tokens, give pretraining.start_from too.",
    )
    corpus: Corpus = Corpus()
    vocabulary: Vocabulary = Vocabulary()
    shards: Shards = Shards()
    pretraining: Pretraining = Pretraining()
    finetuning: Finetuning = Finetuning()
    promotion: Promotion = Promotion()
    engine: Engine = Engine()

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        has_start = bool(self.pretraining.start_from)
        check_trainer_settings(self.preset, self.pretraining, "pretraining", has_start)
        check_shared_batch(self.preset, self.pretraining)
        for mistake in find_contradictions(self):
            raise ValueError(mistake)
        check_promotion(self.chosen_arms, self.finetuning, self.promotion)
        return self

    @property
    def has_published_start(self) -> bool:
        """Return whether pre-training goes on from what somebody published."""
        return bool(self.pretraining.start_from)

    @property
    def chosen_arms(self) -> list[Arm]:
        """Return the arms that the form names, or else the new encoder and the one to beat."""
        default: list[Arm] = ["pre-trained", "origin" if self.pretraining.start_from else "random"]
        return list(self.finetuning.arms) or default


class Parameters(RunTemplate):
    """All of it: what one run of the graph is asked to do."""

    dump: Dump = Dump()
    store: str = STORE


class AdditionTemplate(Settings):
    """What a run that adds a dump is asked to do, whatever the dump; all else is the base's."""

    dump: Reading = Reading()
    increment: Increment = Increment()
    finetuning: Comparison = Comparison()
    promotion: Promotion = Promotion()
    engine: Engine = Engine()

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        # the base may say otherwise
        check_trainer_settings("tiny", self.increment, "increment", has_start=True)
        check_promotion(self.finetuning.arms, self.finetuning, self.promotion)
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
    from_published: bool = Field(
        default=False, description="Whether the base began with a published encoder"
    )

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        check_trainer_settings(self.preset, self.pretraining, "increment", self.from_published)
        return self

    @property
    def has_published_start(self) -> bool:
        return self.from_published

    @property
    def form(self) -> Addition:
        """Return what was asked for."""
        return Addition(**{name: getattr(self, name) for name in Addition.model_fields})
