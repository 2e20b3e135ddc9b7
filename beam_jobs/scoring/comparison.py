"""Compares what was scored with what the model was tested on, and with the records' own labels."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.languages import count_languages
from amazon_electra.beam_jobs.labels import stars as star_scales
from amazon_electra.beam_jobs.labels.values import MAX_SPELLINGS, fold
from amazon_electra.beam_jobs.model_folder.copies import load_trained
from amazon_electra.beam_jobs.model_folder.drift import AnswerTally, Profile, compare_texts
from amazon_electra.beam_jobs.reading.work_units import PreparedUnit

SAMPLED = 300  # texts of a unit that are compared: 0.1 CPU seconds, for their languages above all
GivenLabels = dict[str, dict[str, int]]  # counts of answers by label, as typed


@dataclass(frozen=True)
class ScoredUnit(PreparedUnit):
    """What scoring a unit counted; what is `prepared` has a label, what is `dropped` a reason."""

    index: int = 0  # of its file
    columns: list[str] = field(default_factory=list)  # of its records, where these are kept
    tallies: list[dict[str, Any] | None] = field(default_factory=list)  # drift.AnswerTally
    given: list[GivenLabels] = field(default_factory=list)  # of texts not trained on
    trained: list[int] = field(default_factory=list)  # texts with a label, of each model


def count_sample(
    profile: Profile | None, texts: Sequence[str], probabilities: np.ndarray
) -> dict[str, Any] | None:
    """Return the tally of a sample of texts; None where the model has no profile."""
    if profile is None:
        return None
    chosen = np.random.default_rng(0).permutation(len(texts))[:SAMPLED]
    sample = [texts[i] for i in chosen]
    languages = count_languages(sample)
    return profile.count(sample, probabilities[chosen], languages).to_json()


def count_labels(
    given: Sequence[str | None], answers: Sequence[str | None], texts: Sequence[str], folder: str
) -> tuple[GivenLabels, int]:
    """Return the answers by frequent label, and how many texts, not counted, the model has read."""
    rows = zip(given, answers, texts, strict=True)
    found = [row for row in rows if row[0] is not None and row[1] is not None]
    known = load_trained(folder) if found else None
    is_trained = known.mark_copies([text for *_, text in found]) if known else [False] * len(found)
    counts = defaultdict[str, Counter[str]](Counter)
    for (label, answer, _), is_read in zip(found, is_trained, strict=True):
        if not is_read:
            counts[str(label)][str(answer)] += 1
    kept = sorted(counts, key=lambda label: (-counts[label].total(), label))[:MAX_SPELLINGS]
    return {label: dict(counts[label]) for label in kept}, int(sum(is_trained))


def compare_units(
    units: Sequence[ScoredUnit], profiles: Mapping[str, Profile | None]
) -> dict[str, Any]:
    """Return `drift` by task: how units differ from what each model, by its task, was tested on."""
    drifts = {}
    for place, (task, profile) in enumerate(profiles.items()):
        tallies = [AnswerTally.from_json(one) for unit in units if (one := unit.tallies[place])]
        if profile is None or not tallies:
            continue
        right = count_right([unit.given[place] for unit in units], profile, units[0].file)
        trained = sum(unit.trained[place] for unit in units)
        if drift := compare_texts(profile, reduce(add, tallies), *right, trained):
            drifts[task] = asdict(drift) | {"says": drift.describe()}
    return {"drift": drifts} if drifts else {}


def count_right(given: Sequence[GivenLabels], profile: Profile, file: str) -> tuple[int, int]:
    """Return how many answers are right by the records' own labels, and how many have one."""
    counts = defaultdict[str, Counter[str]](Counter)
    for label, answers in (pair for own in given for pair in own.items()):
        counts[label].update(answers)
    class_of = {fold(name): name for name in profile.labels}
    classes = {label: class_of.get(fold(label)) for label in counts}
    if profile.stars and counts:
        ratings = star_scales.decode_ratings(
            {label: found.total() for label, found in counts.items()}
        )
        try:
            scale = star_scales.decide_scale(ratings, file)
        except UserError:  # whose stars they are is for a person to say: nothing is claimed
            return 0, 0
        stars = scale.map_ratings(np.array([number for number, _ in ratings]))
        classes = {
            label: profile.stars.get(str(number))
            for label, number in zip(counts, stars.tolist(), strict=True)
        }
    right = sum(found[classes[label] or ""] for label, found in counts.items())
    return right, sum(found.total() for label, found in counts.items() if classes[label])
