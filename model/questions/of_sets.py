"""Which labels of a multi-label task look wrong: `suspicious.csv`, class by class."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from amazon_electra.model.arms.out_of_fold import OutOfFold
from amazon_electra.model.finetuning.examples import Task
from amazon_electra.model.finetuning.tasks.corpus import locate_reviews
from amazon_electra.model.questions.of_model import SUSPICIOUS, write_rows
from amazon_electra.model.questions.wrong_labels import WrongLabels, find_wrong_labels

JOINED_BY = " | "


def answer_set_questions(
    held_out: OutOfFold, test: OutOfFold | None, task: Task, data: Path, folder: Path
) -> dict[str, Any]:
    """Write suspicious.csv to the model folder; return what results.json says of wrong labels.

    Each class is a question of its own, yes or no. A row has all classes of a review as they are
    given, and as they are with the suspicious ones exchanged.
    """
    every = held_out.join(test)
    records = locate_reviews(data, every.ids, with_text=True)
    suggested, confidence = every.labels.copy(), np.zeros(len(every))
    found = []
    for place in range(len(task.labels)):
        yes = every.probabilities[:, place]
        found.append(find_wrong_labels(np.stack([1 - yes, yes], 1), every.labels[:, place]))
        for one in found[-1].suspicions:
            suggested[one.place, place] = one.suggested
            confidence[one.place] = max(confidence[one.place], one.confidence)
    wrong = WrongLabels([], sum(one.n for one in found), None, None, None)
    if all(one.estimate is not None for one in found):
        names = ("estimate", "low", "high")
        wrong = replace(wrong, **{name: sum(getattr(w, name) for w in found) for name in names})
    places = [*np.flatnonzero((suggested != every.labels).any(1))]
    places.sort(key=lambda place: (-confidence[place], place))
    rows = [
        {
            **records.get(every.ids[place], {"id": every.ids[place]}),
            "given": name_set(task, every.labels[place]),
            "suggested": name_set(task, suggested[place]),
            "confidence": float(confidence[place]),
            "contradicted": "",
        }
        for place in places
    ]
    write_rows(rows, folder / SUSPICIOUS)
    return {
        "giveaway": None,
        "wrong_labels": {
            "listed": len(rows),
            "contradicted": 0,
            **{name: getattr(wrong, name) for name in ("n", "estimate", "low", "high")},
            "says": f"{wrong.describe()} Each of the {len(task.labels)} classes counts.",
        },
        "trust": {"targets": []},
    }


def name_set(task: Task, has: np.ndarray) -> str:
    """Return the classes of a review in a cell."""
    return JOINED_BY.join(name for name, one in zip(task.labels, has, strict=True) if one)
