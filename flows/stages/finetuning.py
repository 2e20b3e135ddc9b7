"""Fine-tuning: an arm on one task with one seed, the search for its settings, its evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from amazon_electra.beam_jobs.core.nesting import read_json
from amazon_electra.beam_jobs.core.settings import Settings, format_value
from amazon_electra.flows.stages.pretraining import resolve_recipe
from amazon_electra.flows.store.stage import Resources, Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.arms import find_arm
from amazon_electra.model.config import FinetuningSettings
from amazon_electra.model.encoders.config import (
    copy_architecture,
    describe_start,
    write_architecture,
)
from amazon_electra.model.finetuning import VERSION
from amazon_electra.model.finetuning.config import FinetuneConfig
from amazon_electra.model.finetuning.request import change_settings
from amazon_electra.model.pretraining.input.sequences import Shards
from amazon_electra.model.pretraining.objectives import find_objective
from amazon_electra.model.recipes import RECIPES

PART = "part "
"""Before the arm of an input that another arm combines."""
CACHE = "fine-tuning-cache"
"""Folder of the store where fine-tunings keep what others can use; no stage depends on it."""


class TaskConfig(Settings):
    """What decides an evaluation, or a comparison, besides the models and the data."""

    task: str


class Evaluation(Stage):
    """`model` and `data` → predictions and metrics; the fine-tuning's job makes it too."""

    name, version, Config = "evaluation", 8, TaskConfig
    headline = ("n", "metrics.accuracy.value", "metrics.macro_f1.value")
    written_last = "metrics.json"
    takes_accelerator = runs_beside = True

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.model.evaluate import evaluate

        return evaluate(
            store.fetch(self.inputs["model"]),
            self.config.task,
            Path(self.inputs["data"].locate(store)),
            folder,
        ).content


class Finetuned(Stage):
    """`data` and an encoder → a classifier; its job makes the evaluation on test along with it.

    `encoder` is what a fine-tuning starts from, or whose states are read; a random one takes only
    the shape and vocabulary of `architecture`. `teacher` is a model that it also learns from,
    `search` finds the settings that the config leaves open.
    """

    name, version = "finetuning", VERSION
    Config: ClassVar[type[Settings]] = FinetuneConfig
    headline: ClassVar[tuple[str, ...]] = (
        "n_train",
        "learning_rate",
        "dev.accuracy",
        "dev.macro_f1",
    )
    tracked = True
    takes_accelerator = runs_beside = True

    @property
    def parameters(self) -> Mapping[str, Any]:
        config, arm = self.config, find_arm(self.config.arm)
        base = RECIPES[config.recipe].finetuning if config.recipe else FinetuningSettings()
        settings = change_settings(base, config.settings)
        described = {"arm": config.arm, "task": config.task, "seed": config.seed}
        if config.phrases is not None and arm.is_cheap and arm.reads_encoder:
            described["phrases"] = config.phrases
        if arm.settings is not None:
            read = settings.model_dump(include=set(arm.settings))
            is_same = arm.is_cheap and settings.n_train is None  # with each seed
            return described | {"settings": read, **({"seed": 0} if is_same else {})}
        described["settings"] = settings.model_dump()
        if config.start == "trained":
            return described
        described["start"] = config.start
        shape = self.reads.get("shape")
        if shape and "origin" not in shape.inputs:  # no published encoder says the shape
            recipe = resolve_recipe(shape)
            objective = recipe.pretraining.objective
            described["architecture"] = {**recipe.architecture.model_dump(), "objective": objective}
            described["weights"] = describe_start(recipe, find_objective(objective).trunk)
        return described

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.model.finetune import finetune

        config, evaluation = self.config, store.folder(build_evaluation_stage(self))
        if search := self.inputs.get("search"):
            found = read_json(store.fetch(search, "best.json") / "best.json")["settings"]
            best = {name: format_value(value) for name, value in found.items()}
            config = config.replace(settings={**config.settings, **best})
        parts = [store.fetch(one) for name, one in self.inputs.items() if name.startswith(PART)]
        sources = self.locate_sources(store, folder)
        return finetune(config, evaluation=evaluation, parts=parts, **sources).content

    def locate_sources(self, store: Store, folder: Path) -> dict[str, Any]:
        """Return the folders and the device, as the functions take them."""
        inputs, is_random = self.inputs, self.config.start == "random"
        encoder, teacher = inputs.get("encoder"), inputs.get("teacher")
        return {
            "data": Path(inputs["data"].locate(store)),
            "output": folder,
            "encoder": encoder.locate(store) if encoder else None,
            "architecture": self.locate_architecture(store, folder) if is_random else None,
            "teacher": Path(teacher.locate(store)) if teacher else None,
            "cache": store.root / CACHE,
            "device": self.resources.device,
        }

    def locate_architecture(self, store: Store, folder: Path) -> str:
        """Return the folder whose config.json and tokenizer a random encoder takes; that of a
        training from random weights is written to `folder`: nothing waits for its weights.
        """
        shape = self.reads.get("shape") or self.inputs["architecture"]
        if "shards" not in shape.inputs:
            return shape.locate(store)
        target = folder / "architecture"
        shards = Shards.open(Path(shape.inputs["shards"].locate(store)))
        if origin := shape.inputs.get("origin"):
            return str(copy_architecture(target, Path(origin.locate(store)), shards))
        return str(write_architecture(target, resolve_recipe(shape), shards))


class SearchConfig(FinetuneConfig):
    """What decides a search besides its inputs."""

    space: dict[str, Any] = Field(description="setting → choices or range")
    trials: int = 20


class Search(Finetuned):
    """`data` and an encoder → best.json, the settings that are best on dev."""

    name, version, Config = "search", 10, SearchConfig
    headline = ()
    tracked = False

    @property
    def parameters(self) -> Mapping[str, Any]:
        searched = {"space": self.config.space, "trials": self.config.trials}
        return {**super().parameters, **searched}

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.model.finetuning.search import search

        config, sources = self.config, self.locate_sources(store, folder)
        own = config.narrow(FinetuneConfig), config.space, config.trials
        return search(*own, **sources).content


@dataclass(frozen=True)
class Start:
    """What a fine-tuning starts from."""

    encoder: Stage | None = None
    """The encoder; of a random one the encoder whose architecture and vocabulary it shares."""
    arm: str = "finetuned"
    """Name of the arm (model/arms)."""
    kind: str = "trained"
    """`trained`, `random`, `half` or `layers:N` of the teacher."""
    teacher: Stage | None = None
    """A fine-tuned model."""
    parts: Sequence["Start"] = ()
    """What an arm combines: fine-tunings on the same data with the same settings."""


@dataclass(frozen=True)
class Finetuning:
    """A fine-tuning as a run or a study asks for it."""

    start: Start
    task: str
    seed: int
    data: Stage
    settings: Mapping[str, str]
    """As texts."""
    recipe: str = ""
    """Whose fine-tuning settings hold where `settings` says nothing; empty: the defaults."""
    device: str = "auto"
    search: Stage | None = None
    """Finds the settings that `settings` leaves open."""
    phrases: dict[str, list[str]] | None = None
    """Of the classes, in place of the task's own."""

    @property
    def config(self) -> FinetuneConfig:
        recipe: Any = self.recipe or None
        return FinetuneConfig(
            arm=self.start.arm,
            start=self.start.kind,
            task=self.task,
            seed=self.seed,
            recipe=recipe,
            settings=dict(self.settings),
            phrases=self.phrases,
        )

    def list_sources(self) -> dict[str, Any]:
        """Return `inputs`, `reads` and `resources` of the stage. A random encoder depends on the
        vocabulary of the encoder whose architecture it shares, not on its weights.
        """
        start, encoder, reads = self.start, self.start.encoder, dict[str, Stage]()
        inputs = {"data": self.data, "teacher": start.teacher, "search": self.search}
        for part in start.parts:
            inputs[f"{PART}{part.arm}"] = build_finetuning_stage(replace(self, start=part), "", {})
        if encoder and find_arm(start.arm).reads_encoder:
            if start.kind == "trained":
                inputs["encoder"] = encoder
            elif shards := encoder.inputs.get("shards"):
                inputs["vocabulary"] = shards.inputs.get("vocabulary", shards)  # of external ones
                inputs["architecture"] = encoder.inputs.get("origin")
                reads["shape"] = encoder
            else:
                inputs["architecture"] = encoder.inputs.get("origin", encoder)
        return {
            "inputs": {name: stage for name, stage in inputs.items() if stage},
            "reads": reads,
            "resources": Resources(device=self.device),
        }


def build_finetuning_stage(asked: Finetuning, title: str, labels: Mapping[str, str]) -> Finetuned:
    """Return the stage of a fine-tuning; its job makes the evaluation along with it."""
    return Finetuned(asked.config, **asked.list_sources(), title=title, labels=labels)


def build_evaluation_stage(finetuned: Stage) -> Evaluation:
    """Return the evaluation of a fine-tuned model on test."""
    return Evaluation(
        TaskConfig(task=finetuned.config.task),
        {"data": finetuned.inputs["data"], "model": finetuned},
        title=f"{finetuned.title} · test",
    )


def build_search_stage(
    asked: Finetuning, space: Mapping[str, Any], trials: int, title: str
) -> Search:
    """Return the search for the settings of a fine-tuning."""
    config = SearchConfig(**dict(asked.config), space=dict(space), trials=trials)
    return Search(config, **asked.list_sources(), title=title)
