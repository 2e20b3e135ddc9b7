"""The classes of a label that a task can have, and their order where it is certain."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from amazon_electra.beam_jobs.labels.stars import (
    BEST,
    NUMBERED,
    PLAIN,
    REVERSED,
    TABLES,
    parse_rating,
)
from amazon_electra.beam_jobs.labels.values import split_classes

MAX_CLASSES = 200
MIN_LABELLED = 10  # reviews to train on that a class needs
MIN_STEPS = 3  # of two classes an order says nothing
SHOWN_CLASSES = 20
TRAINED_SPLITS = ("pretrain", "train")
STEPS = tuple(
    {name.strip(): step for step, names in enumerate(scale.split(",")) for name in names.split("/")}
    for scale in TABLES["scales"]
)


def count_labels(
    counts: Counter[str], split: str, found: str | None, is_multilabel: bool, texts: int = 1
) -> None:
    """Count texts of a split by what `LabelValues.find_class` found, for `choose_classes`: by
    SPLIT.CLASS; of a multi-label column by each class, and as SPLIT. by themselves.
    """
    if found is not None:
        for name in [*split_classes(found), ""] if is_multilabel else [found]:
            counts[f"{split}.{name}"] += texts


def choose_classes(counts: Mapping[str, int]) -> dict[str, Any]:
    """Return the classes of a label by its reviews by split and class, how many reviews each has,
    and what is left out: values with fewer than MIN_LABELLED reviews to train on.

    There are no classes where fewer than two, or more than MAX_CLASSES, remain. Steps of a scale
    come in its order, and `is_ordered` says so; others in that of their names. Of a multi-label
    column `texts` says how many reviews each split has, with and without a class.
    """
    texts = {name[:-1]: n for name, n in counts.items() if name.endswith(".")}
    counts = {name: n for name, n in counts.items() if not name.endswith(".")}
    trained = Counter[str]()
    for name, n in counts.items():
        split, _, value = name.partition(".")
        trained[value] += n if split in TRAINED_SPLITS else 0
    classes = sorted(value for value, n in trained.items() if n >= MIN_LABELLED)
    steps = [] if texts else order_classes(classes)
    rare = Counter({value: n for value, n in sorted(trained.items()) if n < MIN_LABELLED})
    return {
        "classes": (steps or classes) if 2 <= len(classes) <= MAX_CLASSES else [],
        **({"is_ordered": True} if steps else {}),
        **({"texts": texts} if texts else {}),
        "found": len(classes),
        "counts": {n: c for n, c in counts.items() if n.partition(".")[2] not in rare},
        "left_out": {"values": len(rare), "most_frequent": dict(rare.most_common(SHOWN_CLASSES))},
    }


def warn_of_label(column: str, found: Mapping[str, Any]) -> str:
    """Return what is wrong with the classes of a label, or nothing."""
    rare, left_out = found["left_out"]["most_frequent"], found["left_out"]["values"]
    few = ", ".join(f"{value} ({n})" for value, n in rare.items())
    few += f" and {left_out - len(rare):,} more" if left_out > len(rare) else ""
    about = f"left out, with fewer than {MIN_LABELLED} reviews to train on: {few}" if few else ""
    if not found["classes"]:
        enough = f"{found['found']:,} values have {MIN_LABELLED} reviews to train on"
        about = f"{enough}; a task needs 2 to {MAX_CLASSES}" + f"; {about}" * bool(about)
    return f"label {column}: {about}" if about else ""


def order_classes(classes: Sequence[str]) -> list[str]:
    """Return the classes from the lowest step to the highest where it is certain that they are
    steps: words of a known scale, or ratings with words or signs. Bare numbers and numbered topics
    ("1. Billing") may be names.
    """
    if len(classes) < MIN_STEPS:
        return []
    folded = [" ".join(name.split()).casefold() for name in classes]
    found: list[Sequence[float | None]] = [[one.get(name) for name in folded] for one in STEPS]
    numbered = [words[2] for name in classes if (words := NUMBERED.fullmatch(name))]
    is_bare = all(PLAIN.fullmatch(name) and name[-1:].isdigit() for name in classes)
    if not is_bare and (not numbered or any(map(BEST.match, numbered))):
        ratings = [parse_rating(name) for name in classes]
        sign = -1 if any(rating and rating[1] == REVERSED for rating in ratings) else 1
        found.append([rating and sign * rating[0] for rating in ratings])
    for steps in found:
        if None not in steps and len({*steps}) == len(steps):
            return [name for _, name in sorted(zip(steps, classes, strict=True))]
    return []
