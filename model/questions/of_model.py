"""Answers the questions of a dump's owner about a model: `suspicious.csv`, `errors.csv`, and
`questions` of results.json.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from amazon_electra.beam_jobs.core.files import write_csv
from amazon_electra.beam_jobs.labels.values import CONTRADICTED
from amazon_electra.beam_jobs.model_folder.probabilities import take_logarithms, take_probabilities
from amazon_electra.beam_jobs.model_folder.words import Words, find_top_words
from amazon_electra.model.arms.out_of_fold import OutOfFold
from amazon_electra.model.finetuning.examples import Task
from amazon_electra.model.finetuning.tasks.corpus import (
    LABEL,
    TRAINED,
    count_trained_products,
    locate_reviews,
)
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


def answer_questions(
    held_out: OutOfFold,
    test: OutOfFold | None,
    task: Task,
    data: Path,
    folder: Path,
    predict: Callable[[Sequence[str]], np.ndarray],
    target_accuracy: float | None = None,
    words: Words | None = None,
    averaged: OutOfFold | None = None,
) -> dict[str, Any]:
    """Write suspicious.csv and errors.csv to the model folder; return what results.json says of
    wrong labels, of what can be promised, of what gives the labels away, and so on.

    `held_out` are the answers that the model was chosen by; a promise rests on them, or on `test`
    where that is larger. Labels of both, and of `averaged`, are called wrong by the latter, mean
    probabilities of several models. `predict` gives probabilities of texts; the words of each class
    are those of `words`.
    """
    every = held_out.join(test)
    averaged = averaged or every
    labelled = every.join(averaged)
    records = locate_reviews(data, labelled.ids, with_text=True)
    texts = [records.get(one, {}).get("text", "") for one in labelled.ids] if records else []
    steps = 2 if "mae" in task.metrics else 1  # of a scale
    averaged = averaged.take_ids(labelled.ids)
    wrong, differing = (
        find_wrong_labels(one.probabilities, one.labels, texts, steps)
        for one in (averaged, labelled)
    )
    errors = list_suspicious_rows(differing, labelled, task, records)
    texts = texts[: len(every)]
    rows = list_suspicious_rows(wrong, averaged, task, records)[: wrong.most_listed]
    rows += list_contradicted_rows(task, data, predict)
    rows.sort(key=lambda row: row["own"])
    write_rows(rows, folder / SUSPICIOUS)
    write_rows(errors, folder / ERRORS)
    own = take_probabilities(every.probabilities, every.labels)
    loss = float(-take_logarithms(own).mean())
    titles = [records.get(one, {}).get("title", "") for one in every.ids]
    giveaway = find_giveaway(texts, every.labels, loss, titles) if texts else None
    basis = test if test and len(test) > len(held_out) else held_out
    return {
        "giveaway": giveaway and asdict(giveaway) | {"says": giveaway.describe(task.labels)},
        "wrong_labels": summarize_wrong_labels(wrong, rows),
        "trust": summarize_trust(basis, target_accuracy),
        "words": summarize_words(words, task, texts),
        "slices": summarize_slices(every, task, data, records),
    }


def summarize_wrong_labels(
    wrong: WrongLabels, rows: Sequence[dict[str, Any]], more: str = ""
) -> dict[str, Any]:
    """Return the counts and the sentence about wrong labels; `rows` are those of the list."""
    return {
        "listed": len(rows),
        "contradicted": sum(bool(row["contradicted"]) for row in rows),
        **{name: getattr(wrong, name) for name in ("n", "estimate", "low", "high")},
        "says": wrong.describe() + more,
    }


def answer_set_questions(
    held_out: OutOfFold, test: OutOfFold | None, task: Task, data: Path, folder: Path
) -> dict[str, Any]:
    """Write suspicious.csv and errors.csv to the model folder; return what results.json says of
    wrong labels.

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
    errors = [
        {
            **records.get(every.ids[place], {"id": every.ids[place]}),
            "given": name_set(task, every.labels[place]),
            "suggested": name_set(task, suggested[place]),
            "confidence": float(confidence[place]),
            "contradicted": "",
        }
        for place in places
    ]
    rows = errors[: wrong.most_listed]
    write_rows(rows, folder / SUSPICIOUS)
    write_rows(errors, folder / ERRORS)
    more = f" Each of the {len(task.labels)} classes counts."
    about = summarize_wrong_labels(wrong, rows, more)
    return {"giveaway": None, "wrong_labels": about, "trust": {"targets": []}}


def name_set(task: Task, has: np.ndarray) -> str:
    """Return the classes of a review in a cell."""
    return JOINED_BY.join(name for name, one in zip(task.labels, has, strict=True) if one)


def summarize_slices(
    every: OutOfFold, task: Task, data: Path, records: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the slices of the answers, the weakest first; none of examples that are no reviews."""
    known = [place for place, one in enumerate(every.ids) if one in records]
    n = min(len(known), MAX_REVIEWS)
    chosen = [known[place * len(known) // n] for place in range(n)]
    own = [records[every.ids[place]] for place in chosen]
    mark_products(own, every.folds[chosen].tolist(), data)
    right = (every.probabilities.argmax(1) == every.labels)[chosen]
    fields = describe_fields([one["text"] for one in own], own)
    is_test = np.array([one.get("split") not in TRAINED for one in own], bool)
    return [
        asdict(one) | {"is_weak": one.is_weak, "says": one.describe()}
        for one in find_slices(right, fields, is_test)
    ]


def mark_products(records: Sequence[dict[str, Any]], folds: Sequence[int], data: Path) -> None:
    """Add to each record whether the model that answered it had read another review of its product
    (`is_seen`): one of the training splits, of another fold than its own.
    """
    keys = [
        (one.get("product"), fold if one.get("split") in TRAINED else -1)
        for one, fold in zip(records, folds, strict=True)
    ]
    trained = count_trained_products(data, {product for product, _ in keys if product})
    own = Counter(keys)
    for record, (product, fold) in zip(records, keys, strict=True):
        if product:
            unread = own[product, fold] if fold >= 0 else 0
            record["is_seen"] = trained[product] > unread


def summarize_words(
    words: Words | None, task: Task, texts: Sequence[str]
) -> dict[str, list[tuple[str, int, float]]]:
    """Return the words that speak most for each class, each with how many of the texts have it and
    what it adds to the logits over all of them; nothing without TF-IDF.
    """
    if words is None or not texts:
        return {}
    order = np.random.default_rng(0).permutation(len(texts))[:MAX_WORD_TEXTS]
    some = [texts[i] for i in order]
    return dict(zip(task.labels, find_top_words(words, some), strict=True))


def list_suspicious_rows(
    wrong: WrongLabels, held_out: OutOfFold, task: Task, records: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return a row of errors.csv for each label that looks wrong."""
    rows = []
    for one in wrong.suspicions:
        place = one.place
        given = int(held_out.labels[place])
        record = records.get(held_out.ids[place], {"id": held_out.ids[place]})
        rows.append(
            {
                **record,
                "given": task.labels[given],
                "suggested": task.labels[one.suggested],
                "confidence": one.confidence,
                "contradicted": "yes" if one.is_contradicted else "",
                "own": one.own,
            }
        )
    return rows


def list_contradicted_rows(
    task: Task, data: Path, predict: Callable[[Sequence[str]], np.ndarray]
) -> list[dict[str, Any]]:
    """Return a row for each text whose exact copies have several labels: the corpus gives those no
    label, so no model was trained on them.
    """
    entries = []
    for path in sorted((data / CONTRADICTED).glob("*.jsonl")):
        entries += [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    column = task.name.removeprefix(LABEL)
    chosen = [one for one in entries if one["column"] == column][:MAX_CONTRADICTED]
    if not chosen or not task.name.startswith(LABEL):
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


def write_rows(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the rows as CSV, of each text the beginning."""
    shown = (
        row
        | {
            "confidence": f"{row['confidence']:.4f}",
            "text": " ".join(row.get("text", "").split())[:TEXT_SHOWN],
        }
        for row in rows
    )
    write_csv(path, HEADER, shown)


def summarize_trust(held_out: OutOfFold, target: float | None) -> dict[str, Any]:
    """Return what can be promised at each of TARGETS, and at the target that was asked for."""
    confidence = held_out.probabilities.max(1)
    is_right = held_out.probabilities.argmax(1) == held_out.labels
    found: dict[str, Any] = {
        "targets": [asdict(choose_threshold(confidence, is_right, one)) for one in TARGETS]
    }
    if target:
        asked = choose_threshold(confidence, is_right, target)
        found["asked"] = asdict(asked) | {"says": asked.describe()}
    return found
