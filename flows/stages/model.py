"""The model folder of a task, its best arm in a form that others load, beside the champion."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from amazon_electra.beam_jobs.core.settings import Settings
from amazon_electra.flows.stages.finetuning import CACHE, TESTED, Finetuned, TaskConfig
from amazon_electra.flows.store.stage import Resources, Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.finetuning.classes import ClassesInWords

MAX_COMPARED = 10_000  # test reviews that a model and the champion both predict


class ModelConfig(Settings):
    """What a model folder is chosen from."""

    task: str
    arms: dict[str, str]
    """Input → its arm; beside each fine-tuning there is its evaluation."""
    target_accuracy: float | None = None


class Model(Stage):
    """Fine-tuned cells, their evaluations and `data` → the model folder."""

    name, version, Config = "model", 24, ModelConfig
    headline = ("temperature", "calibration.test.after", "int8.changed")
    runs_beside = True

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.model.export import ExportCell, export

        made, arms = {n: store.fetch(one) for n, one in self.inputs.items()}, self.config.arms
        return export(
            [ExportCell(arm, made[n], made[f"{n}{TESTED}"]) for n, arm in arms.items()],
            self.config.task,
            Path(self.inputs["data"].locate(store)),
            folder,
            target_accuracy=self.config.target_accuracy,
            cache=store.root / CACHE,
        ).content


class Unlabelled(Stage):
    """`encoder`, `data` and classes in words → a model folder that has learned from no label."""

    name, version, Config = "unlabelled", 1, ClassesInWords
    headline = ("texts", "says")
    runs_beside = True

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.model.without_labels import classify_without_labels

        encoder, data = (self.inputs[name].locate(store) for name in ("encoder", "data"))
        how: Any = {"device": self.resources.device, "cache": store.root / CACHE}
        return classify_without_labels(self.config, encoder, data, folder, **how).content


def build_model_stages(
    cells: Sequence[Finetuned], corpus: Stage, target_accuracy: float | None = None
) -> list[Model]:
    """Return the stage of the model folder of each task of these cells."""
    stages = []
    for task in dict.fromkeys(cell.config.task for cell in cells):
        own = [cell for cell in cells if cell.config.task == task]
        arms = {cell.title: cell.labels["arm"] for cell in own}
        found = {stage.title: stage for cell in own for stage in (cell, cell.evaluation)}
        config = ModelConfig(task=task, arms=arms, target_accuracy=target_accuracy)
        stages.append(Model(config, {"data": corpus, **found}, title=f"model · {task}"))
    return stages


def build_unlabelled_stages(
    asked: Sequence[ClassesInWords], corpus: Stage, encoder: Stage, device: str
) -> list[Unlabelled]:
    """Return the stage of a model of each task whose classes are only said in words."""
    more: Any = {"resources": Resources(device=device)}
    more["inputs"] = {"data": corpus, "encoder": encoder}
    return [Unlabelled(one, title=f"model without a label · {one.task}", **more) for one in asked]


class Comparison(Stage):
    """`model`, `champion` and `data` → the difference on reviews that neither was trained on."""

    name, version, Config = "comparison", 1, TaskConfig
    headline = ("n", "loss.difference", "macro_f1.difference")

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.model.evaluation.compare_folders import compare_folders

        own, champion = (store.fetch(self.inputs[name]) for name in ("model", "champion"))
        task, data = self.config.task, Path(self.inputs["data"].locate(store))
        return compare_folders(own, champion, task, data, MAX_COMPARED, load_scorer)


def load_scorer(folder: Path) -> tuple[list[str], Callable[[Sequence[str]], np.ndarray]]:
    """Return the labels of a model folder, and what gives probabilities [texts, classes]."""
    from amazon_electra.beam_jobs.scoring.classifier import load_classifier

    classifier = load_classifier(str(folder), "fp32")
    return classifier.labels, lambda texts: classifier.score(list(texts))


def compare_with_champions(
    models: Sequence[Stage], find: Callable[[str], Stage | None]
) -> Iterator[Comparison]:
    """Yield the comparison of each model with the champion of its task, if one is in this store."""
    for model in models:
        task = model.config.task
        champion = find(task)
        if champion and champion.fingerprint != model.fingerprint:
            inputs = {"model": model, "champion": champion, "data": model.inputs["data"]}
            yield Comparison(TaskConfig(task=task), inputs, title=f"champion · {task}")
