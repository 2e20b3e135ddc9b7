"""A study as it is written in a YAML file, and how it is read, changed and checked."""

import itertools
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from amazon_electra.beam_jobs.core.errors import UserError, format_value, refuse, require
from amazon_electra.beam_jobs.core.nesting import list_strings, load_yaml
from amazon_electra.beam_jobs.core.settings import Settings, build_settings, parse_field
from amazon_electra.flows.configuration.form import SHAPE, Seeds, StudyChanges, StudyForm
from amazon_electra.flows.store.flatten import list_changes
from amazon_electra.model.arms import find_arm
from amazon_electra.model.config import FinetuningSettings, RecipeName
from amazon_electra.model.encoders.places import find_kind, name_place
from amazon_electra.model.finetuning import search
from amazon_electra.model.finetuning.config import FinetuneConfig, split_arm
from amazon_electra.model.finetuning.request import check_for_task
from amazon_electra.model.finetuning.splits import check_data
from amazon_electra.model.finetuning.tasks import TASKS, corpus, find_task
from amazon_electra.model.recipes import RECIPES, apply_settings, check_start_is_not_needed

SHIPPED = Path(__file__).parent / "shipped"
MADE = ("corpus", "shards", "general_shards", "encoder", "origin")  # `${corpus}`, …
BUDGETS = ("same_flops_as", "same_tokens_as")


def is_made_later(place: str) -> bool:
    """Return whether a stage makes it: `${corpus}`, `${encoder}`, …"""
    return place.startswith("${")


def find_arm_name(place: str) -> str:
    """Return NAME of `arm:NAME`, and of other places an empty text."""
    return place.removeprefix("arm:") if place.startswith("arm:") else ""


def check_place(place: str) -> str:
    """Return a place; ValueError where it is neither there nor made nor an arm."""
    if is_made_later(place):
        known = ", ".join(f"${{{name}}}" for name in MADE)
        require(place[2:-1] in MADE, f"no stage makes it; there are {known}")
    elif place and not find_arm_name(place):
        require(Path(place).expanduser().exists(), "no such file or folder")
    return place


def check_encoder(place: str) -> str:
    """Return the place of a published encoder; ValueError where it can be none."""
    is_named = find_kind(place) in ("hub", "package")
    return place if is_named else check_place(place)


Place = Annotated[str, AfterValidator(check_place)]


class Pretraining(Settings, use_attribute_docstrings=True):
    """How an arm's encoder is pre-trained by the study."""

    shards: Place = ""
    """Folder of the shards; empty: this arm is not pre-trained here"""
    recipe: RecipeName = "sample"
    """Size of the encoder"""
    start_from: Annotated[str, AfterValidator(check_encoder)] = ""
    """Published encoder whose weights and shape to start from: a folder, a name on the hub,
    package:MODULE, or ${origin}"""
    set: dict[str, Any] = Field(default={})
    """Any field of PretrainingConfig or Architecture"""
    same_flops_as: str = ""
    """Name of the arm whose pre-training FLOPs this one gets; the steps follow from them"""
    same_tokens_as: str = ""
    """Name of the arm whose number of tokens this one sees, although its shards may be less full"""

    def __bool__(self) -> bool:
        return bool(self.shards)

    @property
    def settings(self) -> dict[str, str]:
        """Return `set` as texts."""
        return {name: format_value(value) for name, value in self.set.items()}

    @model_validator(mode="after")
    def _check(self) -> Self:
        require(self or not self.model_dump(exclude_defaults=True), "is missing", "shards")
        require("seed" not in self.set, "the study has `pretraining_seeds` for all", "set.seed")
        for name in SHAPE if self.start_from else ():
            require(name not in self.set, f"the shape is that of {self.start_from}", f"set.{name}")
        require(not (self.same_flops_as and self.same_tokens_as), "give one budget", BUDGETS[0])
        apply_settings(RECIPES[self.recipe], self.settings)
        if not self.start_from:
            check_start_is_not_needed(self.set)
        return self


class StudyTask(Settings, use_attribute_docstrings=True):
    """What the encoders are fine-tuned for and judged by."""

    task: str = Field(min_length=1)
    """polarity, stars, sst-2, …: model/finetuning/tasks/README.md"""
    data: Place = Field(min_length=1)
    """Its folder or file"""
    title: str = ""
    """Its name in the report, if a task occurs twice"""
    settings: dict[str, Any] = Field(default={})
    """Settings of fine-tuning that differ in this task"""

    @model_validator(mode="after")
    def _check(self) -> Self:
        is_known = self.task in TASKS or self.task.startswith(corpus.LABEL)
        known = ", ".join([*sorted(TASKS), "label:COLUMN"])
        require(is_known, f"unknown; there are {known}", "task", self.task)
        if not is_made_later(self.data):
            with name_place("data", self.data):
                check_data(find_task(self.task, Path(self.data)), Path(self.data))
        return self

    @property
    def name(self) -> str:
        return self.title or self.task


class Arm(Settings, use_attribute_docstrings=True):
    """A way to get an encoder, and the settings it is fine-tuned with where they differ."""

    name: str = Field(min_length=1)
    """Its name in the report"""
    encoder: str = ""
    """Folder or hub name, package:MODULE, ${origin} or `random`; or an arm (model/arms), with a
    colon and the encoder if it reads one, such as `joined:${origin}`; empty where the study
    pre-trains it"""
    architecture: Place = ""
    """For `random`: a folder, or `arm:NAME` for that of another arm"""
    pretraining: Pretraining = Pretraining()
    settings: dict[str, Any] = Field(default={})
    """Settings of fine-tuning that differ in this arm"""

    @model_validator(mode="after")
    def _check(self) -> Self:
        is_one = bool(self.encoder) != bool(self.pretraining) and not find_arm_name(self.encoder)
        forms = "a folder, a hub name, an arm of model/arms or random"
        require(is_one, f"give {forms}, or else `pretraining` with its `shards`", "encoder")
        if is_made_later(self.place) or find_kind(self.place) == "folder":
            with name_place("encoder", self.encoder):
                check_place(self.place)
        is_shaped = (self.encoder == "random") == bool(self.architecture)
        why = "belongs to `encoder: random`: a folder or arm:NAME"
        require(is_shaped, why, "architecture")
        return self

    @property
    def method(self) -> str:
        """Return the name in model/arms of what is fitted."""
        return split_arm(self.encoder)[0] or "finetuned"

    @property
    def place(self) -> str:
        """Return the encoder to read, without the arm before it; empty where there is none."""
        return "" if self.encoder == "random" else split_arm(self.encoder)[1]

    def suits(self, task: StudyTask) -> bool:
        """Return whether the arm is run on a task: one of a shape that it is for."""
        known = TASKS.get(task.task)
        return known is None or known.shape in find_arm(self.method).shapes


class Search(Settings, use_attribute_docstrings=True):
    """Settings searched on dev by Optuna before the cells are run, for each arm by itself."""

    trials: int = Field(default=20, ge=1, le=1000)
    """Fine-tunings to try; bad ones are pruned"""
    space: dict[str, Any] = Field(default={})
    """Setting → list of choices, or {low, high, log}; empty: no search"""


class Study(Settings, use_attribute_docstrings=True):
    """Arms × tasks × seeds × settings."""

    title: str = "Study"
    """Title of the report and of the run"""
    question: str = "Which arm is better?"
    """The question that the report answers"""
    recipe: RecipeName | None = None
    """Recipe whose fine-tuning settings are the defaults"""
    seeds: Seeds = Field(default=[0, 1, 2], min_length=1)
    """One fine-tuning for each"""
    pretraining_seeds: Seeds = Field(default=[0], min_length=1)
    """Every arm that the study pre-trains is pre-trained once with each, and fine-tuned with all
    seeds"""
    arms: list[Arm] = Field(min_length=1)
    """Ways to get an encoder; the first one is compared with each of the others"""
    tasks: list[StudyTask] = Field(min_length=1)
    """What the arms are judged by"""
    settings: dict[str, Any] = Field(default={})
    """Settings of fine-tuning for all arms and tasks"""
    search: Search = Search()

    @property
    def wanted(self) -> frozenset[str]:
        """Return the names of MADE in the file."""
        texts = list(list_strings(self.model_dump()))
        return frozenset(name for name in MADE if any(f"${{{name}}}" in text for text in texts))

    @property
    def reads_dump(self) -> bool:
        """Return whether a stage of the study is made of the dump."""
        return bool(self.wanted - {"origin"})

    @property
    def labelled_tasks(self) -> list[str]:
        """Return the tasks whose examples are the reviews of the dump."""
        return [task.task for task in self.tasks if task.data == "${corpus}"]

    def find_arm(self, name: str) -> Arm:
        """Return the arm of this name; UserError where there is none."""
        arms = {arm.name: arm for arm in self.arms}
        require(name in arms, f"no arm {name!r}; there are {'; '.join(arms)}")
        return arms[name]

    def join_settings(self, task: StudyTask, arm: Arm) -> dict[str, str]:
        """Return the settings of a cell as text; an arm's hold before its task's."""
        together = {**self.settings, **task.settings, **arm.settings}
        return {name: format_value(value) for name, value in together.items()}

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, all_of in (("arms", self.arms), ("tasks", self.tasks)):
            is_one = len({one.name for one in all_of}) == len(all_of)
            require(is_one, "two have the same name; a task may have a `title`", name)
        for i, arm in enumerate(self.arms):
            with name_place(f"arms.{i}.architecture", arm.architecture):
                if name := find_arm_name(arm.architecture):
                    shape = self.find_arm(name)
                    require(shape.place or shape.pretraining, "the arm has no folder")
            require(any(map(arm.suits, self.tasks)), "for no task here", f"arms.{i}.encoder")
            for budget in (name for name in BUDGETS if getattr(arm.pretraining, name)):
                name = getattr(arm.pretraining, budget)
                with name_place(f"arms.{i}.pretraining.{budget}", name):
                    other = self.find_arm(name).pretraining
                    is_equal = other.same_flops_as or other.same_tokens_as
                    why = "is no other arm that is pre-trained for steps of its own"
                    require(other.shards and not is_equal, why)
        for task, arm in itertools.product(self.tasks, self.arms):
            settings = self.join_settings(task, arm)
            config = FinetuneConfig(task=task.task, recipe=self.recipe, settings=settings)
            try:
                chosen = config.resolve_settings()
                if (known := TASKS.get(task.task)) and arm.suits(task):
                    check_for_task(chosen, known, has_teacher=False)
            except UserError as wrong:
                why = f"{arm.name} · {task.name}: {wrong.message}"
                raise UserError(why, f"settings.{wrong.field}", wrong.value) from None
        space = self.search.space
        for mistake in search.validate_space(space):
            require(False, mistake, "search.space")
        for own in (*(arm.settings for arm in self.arms), *(task.settings for task in self.tasks)):
            both = own.keys() & {name.replace("learning_rate", "learning_rates") for name in space}
            field = f"search.space.{min(both, default='')}"
            require(not both, "an arm or a task has its own", field)
        return self


def load_study(form: StudyForm) -> Study:
    """Return the study that the form chooses; UserError names the file and the field."""
    choice, name = form.study, form.study.file
    places = [Path(name).expanduser(), SHIPPED / f"{name}.yaml"]
    file = next((place for place in places if place.is_file()), None)
    shipped = ", ".join(list_shipped_studies())
    if file is None:
        raise UserError(f"no such file, and no shipped study ({shipped})", "study.file", name)
    with refuse(ValueError, message="not valid YAML: {}", field="study.file", value=name):
        content = load_yaml(file.read_text(encoding="utf-8"))
    study = parse_study(content, name)
    if choice.settings:
        study = parse_study(change_study(study, choice.settings), name)
    has_start = "origin" not in study.wanted or form.pretraining.start_from
    require(has_start, f"the study {name} adapts a published encoder", "pretraining.start_from")
    needs_text, text = "general_shards" in study.wanted, choice.general_text
    why = f"the study {name} {'pre-trains on such text' if needs_text else 'needs none'}"
    require(needs_text == bool(text), why, "study.general_text", text or None)
    read = ("device", "start_from", "start_generator_from")
    for field, value in list_changes(form).items():
        section, _, own = field.partition(".")
        is_read = section != "pretraining" or own in read or "encoder" in study.wanted
        require(is_read, "no stage of this study reads it; leave it out", field, value)
    return study


def list_shipped_studies() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def parse_study(content: Any, name: str) -> Study:
    """Return the study of plain dictionaries; UserError names the field that is wrong."""
    try:
        return build_settings(Study, content)
    except UserError as wrong:
        raise UserError(f"{name}: {wrong}") from None


def change_study(study: Study, changes: dict[str, str]) -> dict[str, Any]:
    """Return the content of a study with other seeds, steps of pre-training and settings."""
    content, own = study.model_dump(), StudyChanges.model_fields
    for field, text in changes.items():
        value = parse_field(StudyChanges if field in own else FinetuningSettings, field, text)
        if field == "steps":
            sets = (arm["pretraining"]["set"] for arm in content["arms"])
            for one in (one for one in sets if "steps" in one):
                one["steps"] = value
        elif field in own:
            content[field] = value
        else:
            content["settings"][field] = value
            pairs = itertools.product(study.arms, study.tasks)
            is_used = any(field not in {**arm.settings, **task.settings} for arm, task in pairs)
            require(is_used, "each arm or task of the study sets its own", field, text)
    return content
