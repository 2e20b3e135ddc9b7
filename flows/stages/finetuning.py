"""Fine-tuning: an arm on one task with one seed, the search for its settings, its evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from amazon_electra.beam_jobs.core.nesting import read_json
from amazon_electra.beam_jobs.core.settings import Settings, format_value
from amazon_electra.flows.stages.pretraining import resolve_recipe
from amazon_electra.flows.store.stage import Resources, Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.arms import find_arm
from amazon_electra.model.encoders.config import (
    copy_architecture,
    describe_start,
    write_architecture,
)
from amazon_electra.model.finetuning import VERSION
from amazon_electra.model.finetuning.config import FinetuneConfig
from amazon_electra.model.pretraining.input.sequences import Shards
from amazon_electra.model.pretraining.objectives import find_objective

PART = "part "  # before the arm of an input that another arm combines
TESTED = " · test"  # after the title of a fine-tuning, in that of its evaluation
CACHE = "fine-tuning-cache"  # folder of the store for what others can use; no stage needs it


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

        model, data = store.fetch(self.inputs["model"]), self.inputs["data"].locate(store)
        return evaluate(model, self.config.task, Path(data), folder).content


class Finetuned(Stage):
    """`data` and an encoder → a classifier; its job makes the evaluation on test along with it.

    `encoder` is what a fine-tuning starts from, or whose states are read; a random one takes only
    the shape and vocabulary of `architecture`. `search` finds settings that the config leaves open.
    """

    name, version = "finetuning", VERSION
    Config: ClassVar[type[Settings]] = FinetuneConfig
    headline: ClassVar[tuple[str, ...]] = (
        *("n_train", "learning_rate", "dev.accuracy", "dev.macro_f1"),
    )
    tracked = True
    takes_accelerator = runs_beside = True

    @cached_property
    def evaluation(self) -> Evaluation:
        """The evaluation on test."""
        inputs = {"data": self.inputs["data"], "model": self}
        return Evaluation(TaskConfig(task=self.config.task), inputs, title=f"{self.title}{TESTED}")

    @property
    def parameters(self) -> Mapping[str, Any]:
        config, arm = self.config, find_arm(self.config.arm)
        settings = config.resolve_settings()
        described = config.model_dump(include={"arm", "task", "seed", "space", "trials"})
        if config.phrases is not None and arm.is_cheap and arm.reads_encoder:
            described["phrases"] = config.phrases
        if arm.settings is not None:
            if arm.is_cheap and settings.n_train is None:
                described["seed"] = 0  # it is the same with each
            return {**described, "settings": settings.model_dump(include=set(arm.settings))}
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

        config = self.config
        if search := self.inputs.get("search"):
            found = read_json(store.fetch(search, "best.json") / "best.json")["settings"]
            best = {name: format_value(value) for name, value in found.items()}
            config = config.replace(settings={**config.settings, **best})
        parts = [store.fetch(one) for name, one in self.inputs.items() if name.startswith(PART)]
        sources, evaluation = self.locate_sources(store, folder), store.folder(self.evaluation)
        return finetune(config, evaluation=evaluation, parts=parts, **sources).content

    def locate_sources(self, store: Store, folder: Path) -> dict[str, Any]:
        """Return the folders and the device, as the functions take them."""
        inputs, is_random = self.inputs, self.config.start == "random"
        encoder = inputs.get("encoder")
        return {
            "data": Path(inputs["data"].locate(store)),
            "output": folder,
            "encoder": encoder.locate(store) if encoder else None,
            "architecture": self.locate_architecture(store, folder) if is_random else None,
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
    is_random: bool = False
    parts: Sequence["Start"] = ()
    """What an arm combines: fine-tunings on the same data with the same settings."""


def build_finetuning(
    arm: str,
    asked: FinetuneConfig,
    data: Stage,
    start: Start,
    device: str = "auto",
    *,
    task: str = "",
    **more: str,
) -> Finetuned:
    """Return a cell: the fine-tuning of what is asked from a start, which says its method. Reports
    and MLflow know it by the names of its arm and task, its seed, and `more` of what it is a point
    of. A random encoder depends on the vocabulary of the encoder whose architecture it shares, not
    on its weights.
    """
    inputs, reads = {"data": data}, dict[str, Stage]()
    for part in start.parts:
        inputs[f"{PART}{part.arm}"] = build_finetuning(part.arm, asked, data, part, device)
    encoder = start.encoder if find_arm(start.arm).reads_encoder else None
    if encoder and not start.is_random:
        inputs["encoder"] = encoder
    elif encoder:
        shards, origin = (encoder.inputs.get(name) for name in ("shards", "origin"))
        if shards:
            inputs["vocabulary"] = shards.inputs.get("vocabulary", shards)  # of external ones
            reads["shape"] = encoder
        if origin or not shards:
            inputs["architecture"] = origin or encoder
    task, about = task or asked.task, {"seed": str(asked.seed), **more}
    said = [f"{of} labels" if name == "labels" else f"{name} {of}" for name, of in about.items()]
    return Finetuned(
        asked.replace(arm=start.arm, start="random" if start.is_random else "trained"),
        inputs,
        reads=reads,
        resources=Resources(device=device),
        title=" · ".join([arm, task, *said]),
        labels={"arm": arm, "task": task, **about},
    )
