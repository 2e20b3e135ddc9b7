"""What the corpus of a dump will count, as far as the dump's first records show it."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.corpus.classes import choose_classes, count_labels, warn_of_label
from amazon_electra.beam_jobs.deduplication import exact, held_out
from amazon_electra.beam_jobs.reading import fields
from amazon_electra.beam_jobs.reading.dates import (
    Order,
    count_dates,
    decide_order,
    parse_day,
    resolve_days,
)
from amazon_electra.beam_jobs.reading.label_values import LabelValues, decide_values
from amazon_electra.beam_jobs.reading.stars import decide_scales
from amazon_electra.beam_jobs.reading.work_units import check_split_field
from amazon_electra.beam_jobs.text import splits
from amazon_electra.beam_jobs.text.cleaning import clean_text
from amazon_electra.beam_jobs.text.mojibake import repair_mojibake
from amazon_electra.flows.configuration.form import Corpus, Dump
from amazon_electra.flows.dumps.preview import WITHHOLDING_TEXTS, Preview, count_ratings

MAX_TEXTS = WITHHOLDING_TEXTS
"""Of a dump whose corpus is foretold: its texts are compared with one another in memory."""


def find_time_split(previews: Sequence[Preview], corpus: Corpus) -> tuple[Order | None, int, int]:
    """Return the notation of the dates and the first days of dev and test, by the first records;
    UserError where they leave the notation open, or have too few days.
    """
    counts = count_dates(review.timestamp for each in previews for review in each.reviews)
    mapped = ((each.file.name, dict(each.file.layout.mapping)) for each in previews)
    where = next(f"{name}: {of['timestamp']}" for name, of in mapped if "timestamp" in of)
    notation = decide_order(counts, where, corpus.dates)
    days, _ = resolve_days(counts, notation)
    return notation, *splits.find_cut_offs(days, splits.parse_shares(corpus.split))


def check_split(previews: Sequence[Preview], corpus: Corpus) -> None:
    """Raise UserError where no file has the column that the split is by, or where its values do
    not do, if there are no more than these.
    """
    check_split_field(corpus.split_by, [each.file for each in previews])
    if corpus.split_by == "time" and all(each.is_whole for each in previews):
        find_time_split(previews, corpus)


def describe_dates(previews: Sequence[Preview], corpus: Corpus) -> str:
    """Return a line about a split by time, or about what is not certain by the first records."""
    try:
        notation, _, test = find_time_split(previews, corpus)
    except UserError as mistake:
        return f"dates     {mistake}; the corpus job decides by all of them"
    first = np.datetime64(test, "D")
    order = f", read as {notation}" if notation else ""
    return f"dates     test begins about {first}{order}"


def foretell_corpus(previews: Sequence[Preview], chosen: Dump, corpus: Corpus) -> dict[str, Any]:
    """Return, of what corpus.json will hold, the counts by split of stars and labels, and the
    warnings; nothing where only the job can know: of dumps that are more than their first records,
    are filtered by language, or have more than MAX_TEXTS reviews.
    """
    found = [_read_reviews(each, chosen, corpus.title) for each in previews]
    reviews, values = fold_labels([review for of_file in found for review in of_file], chosen)
    is_certain = all(each.is_whole and not each.is_damaged for each in previews)
    if not is_certain or corpus.languages or not 0 < len(reviews) <= MAX_TEXTS:
        return {}
    texts: dict[bytes, str] = {}
    hashes, kept = list[bytes](), list[fields.Review]()
    for review in reviews:
        given = review.text if isinstance(review.text, str) else ""
        if text := clean_text(repair_mojibake(given) if chosen.repair_mojibake else given):
            hashes.append(exact.hash_text(text))
            kept.append(review)
            texts[hashes[-1]] = text
    sides = _assign_splits(previews, corpus, hashes, kept)
    side_of = dict(zip(hashes, sides.tolist(), strict=True))
    distinct = list(texts)
    is_held_out = held_out.mark_held_out(np.array([side_of[key] for key in distinct], np.int8))
    near, _ = held_out.find_withheld([texts[key] for key in distinct], is_held_out)
    withheld = {distinct[i] for i in np.flatnonzero(near & ~is_held_out)}

    scale = decide_scales(count_ratings(previews), "the dump", chosen.stars_scale)
    ratings = np.array([r.rating[0] if r.rating else np.nan for r in kept])
    stars, labels = Counter[str](), defaultdict[str, Counter[str]](Counter)
    classes: dict[bytes, list[set[str]]] = {}
    for key, review in zip(hashes, kept, strict=True):
        of_text = classes.setdefault(key, [set() for _ in chosen.labels])
        for known, value in zip(of_text, review.labels, strict=True):
            known.update([] if value is None else [value])
    seen = set[tuple[Any, ...]]()
    for key, side, code, review in zip(
        hashes, sides.tolist(), scale.map_ratings(ratings).tolist(), kept, strict=True
    ):
        if key in withheld or (example := (key, code, review.labels)) in seen:
            continue
        seen.add(example)
        stars[f"{splits.SPLITS[side]}.{code or 'none'}"] += 1
        for i, (column, value) in enumerate(zip(chosen.labels, review.labels, strict=True)):
            if len(classes[key][i]) == 1:  # copies have no other class
                count_labels(labels[column], splits.SPLITS[side], value, values[i].is_multilabel)
    chosen_classes = {column: choose_classes(labels[column]) for column in chosen.labels}
    return {
        "stars": dict(stars),
        "stars_scale": scale.name,
        "labels": chosen_classes,
        "warnings": [line for c, of in chosen_classes.items() if (line := warn_of_label(c, of))],
    }


def fold_labels(
    reviews: list[fields.Review], chosen: Dump
) -> tuple[list[fields.Review], list[LabelValues]]:
    """Return reviews with the classes that their labels stand for, by the labels of all, and what
    the values of each label are.
    """
    columns = zip(*(review.labels for review in reviews), strict=True) if chosen.labels else ()
    values = [
        decide_values(Counter(v for v in column if v is not None), chosen.fold_labels)
        for column in columns
    ]

    def find_classes(review: fields.Review) -> tuple[str | None, ...]:
        pairs = zip(values, review.labels, strict=True)
        return tuple(known.find_class(value) for known, value in pairs)

    return [review._replace(labels=find_classes(review)) for review in reviews], values


def _read_reviews(preview: Preview, chosen: Dump, reads_titles: bool) -> list[fields.Review]:
    """Return the reviews of a file with their own labels."""
    mapping = dict(preview.file.layout.mapping)
    read_review = fields.make_review_reader(mapping, Counter(), chosen.labels, reads_titles)
    return [read_review(record) for record in preview.records]


def _assign_splits(
    previews: Sequence[Preview], corpus: Corpus, hashes: list[bytes], reviews: list[fields.Review]
) -> np.ndarray:
    """Return the side of each review as the corpus job assigns it, int8."""
    bounds = splits.parse_shares(corpus.split)
    if corpus.split_by == "time":
        notation, *cut_offs = find_time_split(previews, corpus)
        days = [parse_day(review.timestamp, notation) for review in reviews]
        return splits.assign_by_day(days, (cut_offs[0], cut_offs[1]), b"".join(hashes), bounds, 0)
    if corpus.split_by != "text":
        names = [r.user_id if corpus.split_by == "user" else r.item_id for r in reviews]
        keys = [splits.hash_identifier(name) for name in names]
        hashes = [key or text for key, text in zip(keys, hashes, strict=True)]
    return splits.assign_splits(b"".join(hashes), bounds, 0)
