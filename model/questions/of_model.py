"""Answers the owner's questions about a model: suspicious.csv, errors.csv, results.json."""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from amazon_electra.beam_jobs.core.files import FORMULAS, atomic_path
from amazon_electra.beam_jobs.labels.values import CONTRADICTED
from amazon_electra.beam_jobs.model_folder.probabilities import take_logarithms
from amazon_electra.beam_jobs.model_folder.words import Words, find_top_words
from amazon_electra.model.arms.out_of_fold import OutOfFold
from amazon_electra.model.finetuning.examples import Task
from amazon_electra.model.finetuning.tasks.corpus import LABEL, TRAINED, locate_reviews
from amazon_electra.model.questions.giveaways import find_giveaway
from amazon_electra.model.questions.slices import MAX_REVIEWS, describe_fields, find_slices
from amazon_electra.model.questions.trust import TARGETS, choose_threshold
from amazon_electra.model.questions.wrong_labels import WrongLabels, find_wrong_labels

SUSPICIOUS, ERRORS = "suspicious.csv", "errors.csv"
HEADER = ("file", "row", "id", "month", "given", "suggested", "confidence", "contradicted", "text")
TEXT_SHOWN = 300
"""Characters of a text in the list."""
MAX_WORD_TEXTS = 300
"""Texts in which the words of each class are weighed."""
JOINED_BY = " | "
"""Between the classes of a review in a cell."""
MAX_CONTRADICTED = 1_000
"""Texts of copies with several labels that are listed."""

Records = Mapping[str, Mapping[str, Any]]
"""Record of each example by its id."""
Predict = Callable[[Sequence[str]], np.ndarray]
"""Texts → probabilities [texts, classes]."""


def answer_questions(
    held_out: OutOfFold,
    test: OutOfFold | None,
    task: Task,
    data: Path,
    folder: Path,
    predict: Predict,
    target_accuracy: float | None = None,
    words: Words | None = None,
    averaged: OutOfFold | None = None,
) -> dict[str, Any]:
    """Write suspicious.csv and errors.csv to the model folder; return the `questions` of
    results.json. `held_out` are the answers that the model was chosen by; a promise rests on them,
    or on `test` where that is larger. Labels of both are called wrong by `averaged`, mean
    probabilities of several models. The words of each class are those of `words`.
    """
    every = held_out.join(test)
    averaged = averaged or every
    labelled = every.join(averaged)
    averaged = averaged.take_ids(labelled.ids)
    records: Records = locate_reviews(data, labelled.ids)
    steps = 2 if "mae" in task.metrics else 1  # of a scale
    wrong, differing = (
        find_wrong_labels(one.probabilities, one.labels, steps) for one in (averaged, labelled)
    )

    def list_rows(found: WrongLabels) -> list[dict[str, Any]]:
        return [
            {
                **records.get(labelled.ids[one.place], {"id": labelled.ids[one.place]}),
                "given": task.labels[int(labelled.labels[one.place])],
                "suggested": task.labels[one.suggested],
                "confidence": one.confidence,
                "own": one.own,
            }
            for one in found.suspicions
        ]

    rows = list_rows(wrong)[: wrong.most_listed] + list_contradicted_rows(task, data, predict)
    rows.sort(key=lambda row: row["own"])
    about = write_lists(folder, wrong, rows, list_rows(differing))
    own = [records.get(one, {}) for one in every.ids] if records else []
    texts, titles = ([one.get(name, "") for one in own] for name in ("text", "title"))
    of_label = every.probabilities[np.arange(len(every.labels)), every.labels]
    loss = float(-take_logarithms(of_label).mean())
    giveaway = find_giveaway(texts, every.labels, loss, titles) if texts else None
    basis = test if test and len(test) > len(held_out) else held_out
    confidence = basis.probabilities.max(1)
    is_right = basis.probabilities.argmax(1) == basis.labels
    trust: dict[str, Any] = {
        "targets": [asdict(choose_threshold(confidence, is_right, one)) for one in TARGETS]
    }
    if target_accuracy:
        asked = choose_threshold(confidence, is_right, target_accuracy)
        trust["asked"] = asdict(asked) | {"says": asked.describe()}
    top_words: dict[str, list[tuple[str, int, float]]] = {}
    if words is not None and texts:
        some = np.random.default_rng(0).permutation(len(texts))[:MAX_WORD_TEXTS]
        found = find_top_words(words, [texts[i] for i in some])
        top_words = dict(zip(task.labels, found, strict=True))
    return {
        "giveaway": giveaway and asdict(giveaway) | {"says": giveaway.describe(task.labels)},
        "wrong_labels": about,
        "trust": trust,
        "words": top_words,
        "slices": summarize_slices(every, records),
    }


def answer_set_questions(
    held_out: OutOfFold, test: OutOfFold | None, task: Task, data: Path, folder: Path
) -> dict[str, Any]:
    """Do the same for a multi-label task: each class is a question of its own, yes or no."""
    every = held_out.join(test)
    records: Records = locate_reviews(data, every.ids)
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
    errors = []
    for place in np.lexsort((np.arange(len(every)), -confidence))[: np.count_nonzero(confidence)]:
        given, other = (
            JOINED_BY.join(name for name, has in zip(task.labels, own[place], strict=True) if has)
            for own in (every.labels, suggested)
        )
        row = {"given": given, "suggested": other, "confidence": float(confidence[place])}
        errors.append({**records.get(every.ids[place], {"id": every.ids[place]}), **row})
    about = write_lists(folder, wrong, errors[: wrong.most_listed], errors)
    about["says"] += f" Each of the {len(task.labels)} classes counts."
    return {"giveaway": None, "wrong_labels": about, "trust": {"targets": []}}


def list_contradicted_rows(task: Task, data: Path, predict: Predict) -> list[dict[str, Any]]:
    """Return a row for each text whose exact copies have several labels, none of them learnt."""
    files = sorted((data / CONTRADICTED).glob("*.jsonl")) if task.name.startswith(LABEL) else []
    lines = [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    entries, column = map(json.loads, lines), task.name.removeprefix(LABEL)
    chosen = [one for one in entries if one["column"] == column][:MAX_CONTRADICTED]
    if not chosen:
        return []
    probabilities = predict([one["text"] for one in chosen])
    return [
        {
            **entry,
            "given": " and ".join(entry["labels"]),
            "suggested": task.labels[int(row.argmax())],
            "confidence": float(row.max()),
            "contradicted": "yes",
            "own": float(1 - row.max()),
        }
        for entry, row in zip(chosen, probabilities, strict=True)
    ]


def write_lists(
    folder: Path,
    wrong: WrongLabels,
    rows: Sequence[dict[str, Any]],
    errors: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Write suspicious.csv and errors.csv; return the counts and the sentence on wrong labels."""
    for name, listed in ((SUSPICIOUS, rows), (ERRORS, errors)):
        with (
            atomic_path(folder / name) as path,
            path.open("w", encoding="utf-8", newline="") as file,
        ):
            writer = csv.writer(file)
            writer.writerow(HEADER)
            for row in listed:
                text = " ".join(row.get("text", "").split())[:TEXT_SHOWN]
                shown = {**row, "confidence": f"{row['confidence']:.4f}", "text": text}
                cells = ["" if shown.get(key) is None else str(shown[key]) for key in HEADER]
                # a spreadsheet would compute what begins so
                writer.writerow([f"'{one}" if one.startswith(FORMULAS) else one for one in cells])
    return {
        "listed": len(rows),
        "contradicted": sum("contradicted" in row for row in rows),
        **{name: getattr(wrong, name) for name in ("n", "estimate", "low", "high")},
        "says": wrong.describe(),
    }


def summarize_slices(every: OutOfFold, records: Records) -> list[dict[str, Any]]:
    """Return the slices of the answers, the weakest first; none of examples that are no reviews."""
    known = [place for place, one in enumerate(every.ids) if one in records]
    n = min(len(known), MAX_REVIEWS)
    chosen = [known[place * len(known) // n] for place in range(n)]
    own = [records[every.ids[place]] for place in chosen]
    right = (every.probabilities.argmax(1) == every.labels)[chosen]
    fields = describe_fields([one["text"] for one in own], own)
    is_test = np.array([one.get("split") not in TRAINED for one in own], bool)
    return [
        asdict(one) | {"is_weak": one.is_weak, "says": one.describe()}
        for one in find_slices(right, fields, is_test)
    ]
