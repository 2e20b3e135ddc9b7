"""The arm of a fine-tuned network and TF-IDF together: words and network err differently."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.nesting import read_json
from amazon_electra.beam_jobs.model_folder.probabilities import sum_logits
from amazon_electra.model.arms import find_arm, register
from amazon_electra.model.arms.arm import Examples, Resources
from amazon_electra.model.arms.out_of_fold import OutOfFold
from amazon_electra.model.arms.parts import Part, Parts
from amazon_electra.model.evaluation.predictions import compute_log_loss
from amazon_electra.model.finetuning.request import Request

SHARES = tuple(number / 10 for number in range(1, 10))
"""Shares of the first part that are tried; the rest is the second one's."""
MIN_LABELS = 100
"""Held-out examples below which both parts count the same: fewer choose no share."""
TEMPERATURES = (0.2, 10.0)
"""By which the sum is divided, between these."""


@register
class Stack(Parts):
    """The logits of the fine-tuned network and of TF-IDF, weighted and added."""

    name = "stack"
    title = "{}, and TF-IDF together"
    cross_validates = True
    combines = ("finetuned", "tfidf")

    @classmethod
    def fit(
        cls, train: Examples, dev: Examples, request: Request, resources: Resources, output: Path
    ) -> Self:
        folders = find_parts(request.start.parts, cls.combines)
        held_out = [OutOfFold.load(folder) for folder in folders]
        shared = set(held_out[0].ids).intersection(*(one.ids for one in held_out[1:]))
        ids = [one for one in held_out[0].ids if one in shared]
        require(ids, f"{folders[0]} and {folders[1]} have no example in common", "parts")
        own = [one.take_ids(ids) for one in held_out]
        weights, tried = choose_weights([one.logits for one in own], own[0].labels)
        parts = [
            Part(name, find_arm(name).load(folder, resources), weight)
            for name, folder, weight in zip(cls.combines, folders, weights, strict=True)
        ]
        results = [read_json(folder / "result.json") for folder in folders]
        facts: dict[str, Any] = {"tried": tried, "n_train": len(train)}
        facts["weights"] = dict(zip(cls.combines, weights, strict=True))
        facts["device"] = results[0]["device"]
        facts["parameters"] = sum(result["parameters"] for result in results)
        arm = cls(parts, facts)
        logits = sum_logits([one.logits for one in own], weights).astype(np.float32)
        arm.out_of_fold = OutOfFold(ids, own[0].labels, logits, own[0].folds)
        return arm


def find_parts(folders: Sequence[Path], arms: Sequence[str]) -> list[Path]:
    """Return the fitted folder of each arm; UserError unless there is one for each."""
    kinds = {}
    for folder in folders:
        file = folder / "task.json"
        require(file.exists(), f"{folder} has no task.json; give fitted folders", "parts")
        kinds[read_json(file).get("kind", "finetuned")] = folder
    is_whole = sorted(kinds) == sorted(arms) and len(folders) == len(arms)
    found, wanted = (", ".join(sorted(names)) or "none" for names in (kinds, arms))
    require(is_whole, f"found {found}; give a fitted folder of each of {wanted}", "parts")
    return [kinds[arm] for arm in arms]


def choose_weights(
    logits: Sequence[np.ndarray], labels: np.ndarray
) -> tuple[list[float], list[dict[str, Any]]]:
    """Return the weight of each of two parts with the smallest log-loss of held-out examples, their
    sum being one over the temperature, and what was tried, the best first.
    """
    from scipy.optimize import minimize_scalar

    def compute_loss(share: float, temperature: float) -> float:
        weights = [share / temperature, (1 - share) / temperature]
        return compute_log_loss(sum_logits(logits, weights).astype(np.float32), labels)

    tried = []
    for share in SHARES if len(labels) >= MIN_LABELS else (0.5,):
        found = minimize_scalar(
            lambda log, share=share: compute_loss(share, float(np.exp(log))),
            bounds=np.log(TEMPERATURES),
            method="bounded",
        )
        temperature = float(np.exp(found.x)) if len(labels) >= MIN_LABELS else 1.0
        loss = compute_loss(share, temperature)
        tried.append({"share": share, "temperature": round(temperature, 4), "loss": loss})
    tried.sort(key=lambda one: one["loss"])
    share, temperature = tried[0]["share"], tried[0]["temperature"]
    return [round(part / temperature, 4) for part in (share, 1 - share)], tried
