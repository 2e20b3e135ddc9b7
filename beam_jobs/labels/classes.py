"""The classes of a label that a task can have, by how many reviews of a corpus each has, and their
order where it is certain.
"""

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
    trained: dict[str, int] = {}
    for name, n in counts.items():
        split, _, value = name.partition(".")
        trained[value] = trained.get(value, 0) + (n if split in TRAINED_SPLITS else 0)
    classes = sorted(value for value, n in trained.items() if n >= MIN_LABELLED)
    steps = [] if texts else order_classes(classes)
    rare = {value: n for value, n in sorted(trained.items()) if n < MIN_LABELLED}
    shown = sorted(rare, key=lambda value: (-rare[value], value))[:SHOWN_CLASSES]
    return {
        "classes": (steps or classes) if 2 <= len(classes) <= MAX_CLASSES else [],
        **({"is_ordered": True} if steps else {}),
        **({"texts": texts} if texts else {}),
        "found": len(classes),
        "counts": {n: c for n, c in counts.items() if n.partition(".")[2] not in rare},
        "left_out": {"values": len(rare), "most_frequent": {value: rare[value] for value in shown}},
    }


def warn_of_label(column: str, found: Mapping[str, Any]) -> str:
    """Return what is wrong with the classes of a label, or nothing."""
    rare, left_out = found["left_out"]["most_frequent"], found["left_out"]["values"]
    shown = ", ".join(f"{value} ({n})" for value, n in rare.items())
    shown += f" and {left_out - len(rare):,} more" if left_out > len(rare) else ""
    if not found["classes"]:
        return (
            f"label {column}: {found['found']:,} values have {MIN_LABELLED} reviews to train on; "
            f"a task needs 2 to {MAX_CLASSES}" + (f"; rarer: {shown}" if shown else "")
        )
    if not left_out:
        return ""
    return f"label {column}: left out, with fewer than {MIN_LABELLED} reviews to train on: {shown}"


def order_classes(classes: Sequence[str]) -> list[str]:
    """Return the classes from the lowest step to the highest where it is certain that they are
    steps: words of a known scale, or ratings with words or signs. Bare numbers and numbered topics
    ("1. Billing") may be names.
    """
    if len(classes) < MIN_STEPS:
        return []
    folded = [" ".join(name.split()).casefold() for name in classes]
    for steps in STEPS:
        if ordered := _sort(classes, [steps.get(name) for name in folded]):
            return ordered
    ratings = [parse_rating(name) for name in classes]
    numbered = [found for name in classes if (found := NUMBERED.fullmatch(name))]
    is_scale = any(BEST.match(found[2]) for found in numbered) if numbered else True
    if not is_scale or all(PLAIN.fullmatch(name) and name[-1:].isdigit() for name in classes):
        return []
    sign = -1 if any(rating and rating[1] == REVERSED for rating in ratings) else 1
    return _sort(classes, [rating and sign * rating[0] for rating in ratings])


def _sort(classes: Sequence[str], steps: Sequence[float | None]) -> list[str]:
    """Return the classes by their steps; nothing where one has none, or two have the same."""
    if None in steps or len({*steps}) < len(steps):
        return []
    return [name for _, name in sorted(zip(steps, classes, strict=True))]
