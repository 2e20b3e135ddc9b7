"""A new model beside the champion of its task, as it is registered, on the new test reviews."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from amazon_electra.flows.stages.evaluation import TaskConfig
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store

MAX_COMPARED = 10_000
"""Test reviews that both models predict."""


class Comparison(Stage):
    """`model`, `champion` and `data` → the difference on test reviews that neither was trained on.

    Both folders predict as `score` loads them: nothing of the champion is trained anew.
    """

    name, version, Config = "comparison", 1, TaskConfig
    headline = ("n", "loss.difference", "macro_f1.difference")

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.model.evaluation.compare_folders import compare_folders

        return compare_folders(
            store.fetch(self.inputs["model"]),
            store.fetch(self.inputs["champion"]),
            self.config.task,
            Path(self.inputs["data"].locate(store)),
            MAX_COMPARED,
            load_scorer,
        )


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
