"""Fine-tuning, its evaluation, the search of its settings and its latency: a cell of a study is one
encoder, one task, one seed.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from beam_jobs.core.files import write_json
from beam_jobs.core.settings import format_value
from flows.runner.stage_runner import ONE_THREAD
from flows.stages.origin import locate_origin, locate_stage
from flows.stages.pretraining import locate_encoder, resolve_recipe
from flows.stages.versions import VERSIONS
from flows.store.store import ACCELERATOR, Stage, Store
from model.config import FinetuningSettings
from model.encoders.config import copy_architecture, describe_start, write_architecture
from model.finetuning.request import FROZEN, change_settings
from model.pretraining.input.sequences import Shards
from model.recipes import RECIPES

CACHE = "fine-tuning-cache"
"""Folder of the store where fine-tunings keep what others can use; no stage depends on it."""


@dataclass(frozen=True)
class Start:
    """What a fine-tuning starts from."""

    encoder: Stage | None = None
    """The encoder; of a random one the encoder whose architecture and vocabulary it shares."""
    kind: str = "trained"
    """`trained`, `random`, `half` or `layers:N` of the teacher, `frozen`, or `tfidf`."""
    teacher: Stage | None = None
    """A fine-tuned model."""
    initializer_range: float = 0.0
    """Of a random encoder; 0: as the pre-training of its architecture began."""


BASELINES = ("tfidf", "frozen")
OF_BASELINES = (
    *("n_train", "n_dev", "n_test", "fold", "sampling", "balanced_test"),
    *("max_length", "precision"),
)
"""The settings that a baseline reads."""


@dataclass(frozen=True)
class Finetuning:
    """All that decides what a cell computes. Its name, and that of its arm, decide nothing."""

    start: Start
    task: str
    seed: int
    data: Stage
    settings: Mapping[str, str]
    """As `--set` takes them."""
    recipe: str = ""
    """Whose fine-tuning settings hold where `settings` says nothing; empty: the defaults."""
    device: str = "auto"
    search: Stage | None = None
    """Finds the settings that `settings` leaves open."""

    @property
    def is_baseline(self) -> bool:
        return self.start.kind in BASELINES

    @property
    def deciding_seed(self) -> int:
        """Return the seed; 0 of a baseline on all labels, which is the same for each."""
        return 0 if self.is_baseline and self.resolved.n_train is None else self.seed

    @property
    def resolved(self) -> FinetuningSettings:
        base = RECIPES[self.recipe].finetuning if self.recipe else FinetuningSettings()
        return change_settings(base, self.settings)


@dataclass(frozen=True)
class Cell:
    """One fine-tuning of an arm and its evaluation."""

    arm: str
    task: str
    seed: int
    finetuned: Stage
    evaluated: Stage
    folds: tuple[Stage, ...] = ()
    """What the evaluation of a cross-validation is joined from, in the order it is made."""
    labels: int = 0
    """Labels it is trained with, a point of the label curve; 0: all."""

    @property
    def chain(self) -> tuple[Stage, ...]:
        return self.finetuned, *self.folds, self.evaluated

    def is_made_of(self, encoder: Stage) -> bool:
        sources = {stage.fingerprint for stage in self.finetuned.inputs.values()}
        return encoder.fingerprint in sources

    def is_among(self, cells: Iterable["Cell"]) -> bool:
        return self.finetuned.fingerprint in {cell.finetuned.fingerprint for cell in cells}


def build_finetuning_stage(chosen: Finetuning, title: str, labels: Mapping[str, str]) -> Stage:
    """Return the stage of a fine-tuning; its job makes the evaluation along with it."""
    return Stage(
        "finetuning",
        VERSIONS["finetuning"],
        describe_finetuning(chosen),
        list_inputs(chosen),
        "model.finetune",
        partial(format_finetuning_arguments, chosen),
        title=title,
        environment=ONE_THREAD,
        shares_process=True,
        tracked=True,
        labels=labels,
    )


def format_finetuning_arguments(chosen: Finetuning, store: Store, folder: Path) -> list[str]:
    """Return the command line of a fine-tuning and its evaluation."""
    evaluated = build_evaluation_stage(chosen, build_finetuning_stage(chosen, "", {}))
    return [*format_arguments(chosen, store, folder), "--evaluation", str(store.folder(evaluated))]


def describe_finetuning(chosen: Finetuning) -> dict[str, Any]:
    """Return what decides a fine-tuning besides the stages that it is made of."""
    start, told = chosen.start, {"task": chosen.task, "seed": chosen.deciding_seed}
    settings = {"settings": chosen.resolved.model_dump()}
    if chosen.is_baseline:
        read = {name: settings["settings"][name] for name in OF_BASELINES}
        return {**told, "encoder": start.kind, "settings": read}
    if start.kind == "trained":
        return {**told, **settings}
    told |= {**settings, "encoder": start.kind}
    first = start.encoder  # a pre-training, whose shape no published encoder says
    if first and (not is_made_here(first) or "origin" in first.inputs):
        first = None
    if first:  # what config.json takes of it
        recipe = resolve_recipe(first)
        objective = {"objective": recipe.pretraining.objective}
        told["architecture"] = recipe.architecture.model_dump() | objective
    if start.initializer_range:
        told["initializer_range"] = start.initializer_range
    elif first:  # how the weights are drawn that it, or the one it goes on from, began with
        while "base" in first.inputs:
            first = first.inputs["base"]
        recipe = resolve_recipe(first)
        role = "discriminator" if recipe.pretraining.objective == "electra" else "encoder"
        told["start"] = describe_start(recipe, role)
    return told


def list_inputs(chosen: Finetuning) -> dict[str, Stage]:
    """Return the stages whose content decides the fine-tuning.

    A random encoder depends on the vocabulary of the encoder whose architecture it shares, not on
    that one's weights.
    """
    start = chosen.start
    inputs = {"data": chosen.data, "teacher": start.teacher, "search": chosen.search}
    if start.encoder and start.kind in ("trained", "frozen"):
        inputs["encoder"] = start.encoder
    elif start.encoder and is_made_here(start.encoder):
        shards = start.encoder.inputs["shards"]
        inputs["vocabulary"] = shards.inputs.get("vocabulary", shards)  # external ones have theirs
        inputs["architecture"] = start.encoder.inputs.get("origin")
    else:
        inputs["architecture"] = start.encoder
    return {name: stage for name, stage in inputs.items() if stage}


def is_made_here(encoder: Stage) -> bool:
    """Return whether a graph names what the encoder is made of."""
    return "shards" in encoder.inputs


def format_arguments(chosen: Finetuning, store: Store, folder: Path) -> list[str]:
    """Return the command line that fine-tuning and search share."""
    start = chosen.start
    words = ["--encoder", start.kind]
    if start.kind == "trained" and start.encoder:
        words = ["--encoder", locate_encoder(store, start.encoder)]
    if start.kind == "frozen" and start.encoder:
        words = ["--encoder", f"{FROZEN}{locate_encoder(store, start.encoder)}"]
    if start.kind == "random" and start.encoder:
        words += ["--architecture", locate_architecture(start.encoder, store, folder)]
    if start.initializer_range:
        words += ["--initializer-range", str(start.initializer_range)]
    if start.teacher:
        words += ["--teacher", locate_stage(store, start.teacher)]
    words += ["--task", chosen.task, "--data", locate_stage(store, chosen.data)]
    words += ["--output", str(folder), "--seed", str(chosen.deciding_seed)]
    words += ["--device", chosen.device, "--cache", str(store.root / CACHE)]
    if chosen.is_baseline:
        read = chosen.resolved.model_dump(include=set(OF_BASELINES))
        for name, value in sorted(read.items()):
            words += ["--set", f"{name}={format_value(value)}"]
        return words
    words += ["--recipe", chosen.recipe] if chosen.recipe else []
    settings = dict(chosen.settings)
    if chosen.search:
        found = json.loads(
            (store.fetch(chosen.search, "best.json") / "best.json").read_text(encoding="utf-8")
        )
        settings |= {name: format_value(value) for name, value in found["settings"].items()}
    for name, text in sorted(settings.items()):
        words += ["--set", f"{name}={text}"]
    return words


def locate_architecture(encoder: Stage, store: Store, folder: Path) -> str:
    """Return the folder whose config.json and tokenizer a random encoder takes.

    That of a pre-training from random weights is written to `folder`, so that nobody waits for it.
    """
    if not is_made_here(encoder) or "base" in encoder.inputs:
        return locate_encoder(store, encoder)
    shards = Shards.open(Path(locate_stage(store, encoder.inputs["shards"])))
    if origin := encoder.inputs.get("origin"):
        return str(copy_architecture(folder / "architecture", locate_origin(store, origin), shards))
    return str(write_architecture(folder / "architecture", resolve_recipe(encoder), shards))


def build_search_stage(
    chosen: Finetuning, space: Mapping[str, Any], trials: int, title: str
) -> Stage:
    """Return the search for the settings of a fine-tuning, on dev."""
    return Stage(
        "search",
        VERSIONS["search"],
        {**describe_finetuning(chosen), "space": dict(space), "trials": trials},
        list_inputs(chosen),
        "model.finetuning.search",
        partial(format_search_arguments, chosen, space, trials),
        title=title,
        environment=ONE_THREAD,
        shares_process=True,
    )


def format_search_arguments(
    chosen: Finetuning, space: Mapping[str, Any], trials: int, store: Store, folder: Path
) -> list[str]:
    """Return the command line of a search; its space is written to `folder`."""
    write_json(folder / "space.json", dict(space))
    search = ["--space", str(folder / "space.json"), "--trials", str(trials)]
    return [*format_arguments(chosen, store, folder), *search]


def build_evaluation_stage(
    chosen: Finetuning, finetuned: Stage, folds: Sequence[Stage] = ()
) -> Stage:
    """Return the evaluation on test, which the fine-tuning job usually makes along the way: that
    saves the start of another process. With `folds` it is joined from their evaluations.
    """
    return Stage(
        "evaluation",
        VERSIONS["evaluation"],
        {"task": chosen.task, "split": "test", **({"folds": len(folds)} if folds else {})},
        {
            "data": chosen.data,
            "model": finetuned,
            **{f"fold {number}": stage for number, stage in enumerate(folds, 1)},
        },
        "model.evaluate",
        partial(format_evaluation_arguments, chosen, finetuned, folds),
        title=f"{finetuned.title} · {f'{len(folds)} folds' if folds else 'test'}",
        written_last="metrics.json",
        environment=ONE_THREAD,
        shares_process=True,
    )


def build_cross_validation(
    chosen: Finetuning, finetuned: Stage, folds: int
) -> tuple[list[Stage], Stage]:
    """Return the fine-tunings and evaluations of the folds of a cell, and their joined evaluation,
    which stands for the cell in the report.
    """
    made, evaluated = [], []
    for number in range(1, folds + 1):
        one = replace(chosen, settings={**chosen.settings, "fold": f"{number}/{folds}"})
        labels = {**finetuned.labels, "fold": str(number)}
        stage = build_finetuning_stage(one, f"{finetuned.title} · fold {number}", labels)
        evaluated.append(build_evaluation_stage(one, stage))
        made += [stage, evaluated[-1]]
    return made, build_evaluation_stage(chosen, finetuned, evaluated)


def format_evaluation_arguments(
    chosen: Finetuning, finetuned: Stage, folds: Sequence[Stage], store: Store, folder: Path
) -> list[str]:
    """Return the command line of an evaluation on test, or of joining those of folds."""
    return [
        *["--model", str(store.fetch(finetuned))],
        *["--task", chosen.task, "--data", locate_stage(store, chosen.data)],
        *["--split", "test", "--output", str(folder)],
        *(["--folds", *(str(store.fetch(fold)) for fold in folds)] if folds else []),
    ]


def build_latency_stage(chosen: Finetuning, finetuned: Stage, title: str) -> Stage:
    """Return the measurement of size, speed and memory of a fine-tuned model."""
    return Stage(
        "latency",
        VERSIONS["latency"],
        {"task": chosen.task, "device": chosen.device},
        {"data": chosen.data, "model": finetuned},
        "model.evaluation.latency",
        partial(format_latency_arguments, chosen, finetuned),
        title=title,
        tags=(ACCELERATOR,),
        environment=ONE_THREAD,
    )


def format_latency_arguments(
    chosen: Finetuning, finetuned: Stage, store: Store, folder: Path
) -> list[str]:
    """Return the command line that measures a fine-tuned model."""
    return [
        *["--model", str(store.fetch(finetuned)), "--task", chosen.task],
        *["--data", locate_stage(store, chosen.data), "--device", chosen.device],
        *["--output", str(folder / "latency.json")],
    ]
