"""The order of classes that are steps of a scale, where it is certain: words of a known scale
(poor, fair, good), or ratings as `stars` reads them (smileys, "5 - Excellent", "4 stars").

Bare numbers and numbered topics ("1. Billing") have none: they may be names.
"""

from collections.abc import Sequence

from amazon_electra.beam_jobs.reading.stars import BEST, NUMBERED, PLAIN, REVERSED, parse_rating

MIN_STEPS = 3  # of two classes an order says nothing
SCALES = (
    "terrible/horrible/awful/worst, very bad/very poor, bad/poor, fair/ok/okay/average/neutral/"
    "mediocre/so-so, good, very good/great, excellent/outstanding/perfect/best",
    "very negative, negative, neutral/mixed, positive, very positive",
    "very dissatisfied/very unsatisfied, dissatisfied/unsatisfied, neutral/neither, satisfied, "
    "very satisfied",
    "strongly disagree, disagree, neutral/undecided/neither, agree, strongly agree",
    "very unlikely, unlikely, neutral, likely, very likely",
    "detractor, passive, promoter",
    "detractors, passives, promoters",
    "never, rarely/seldom, sometimes, often, always",
    "none, trivial, minor, moderate, major/severe, critical, blocker",
    "lowest/very low, low, medium/normal/moderate, high, highest/very high/urgent, critical",
    "small, medium, large",
    "sehr schlecht, schlecht, mittel/mittelmäßig/okay/ok, gut, sehr gut",
    "ungenügend, mangelhaft, ausreichend, befriedigend, gut, sehr gut",
    "sehr unzufrieden, unzufrieden, neutral, zufrieden, sehr zufrieden",
    "negativ, neutral, positiv",
    "niedrig/gering, mittel, hoch, kritisch",
    "très mauvais, mauvais, moyen/correct/passable, bon, très bon, excellent",
    "très insatisfait, insatisfait, neutre, satisfait, très satisfait",
    "négatif, neutre, positif",
    "muy malo, malo, regular, bueno, muy bueno, excelente",
    "muy insatisfecho, insatisfecho, neutral, satisfecho, muy satisfecho",
    "negativo, neutro/neutral, positivo",
    "pessimo, scarso, sufficiente, buono, ottimo",
    "péssimo, ruim, regular, bom, muito bom/ótimo",
    "zeer slecht, slecht, matig/neutraal, goed, zeer goed",
)
"""From the lowest step to the highest; a slash stands between names of one step."""
STEPS = tuple(
    {name.strip(): step for step, names in enumerate(scale.split(",")) for name in names.split("/")}
    for scale in SCALES
)


def order_classes(classes: Sequence[str]) -> list[str]:
    """Return the classes from the lowest step to the highest, or nothing where it is not certain
    that they are steps.
    """
    if len(classes) < MIN_STEPS:
        return []
    folded = [" ".join(name.split()).casefold() for name in classes]
    for steps in STEPS:
        if places := _sort([steps.get(name) for name in folded]):
            return [classes[place] for place in places]
    ratings = [parse_rating(name) for name in classes]
    numbered = [found for name in classes if (found := NUMBERED.fullmatch(name))]
    is_scale = any(BEST.match(found[2]) for found in numbered) if numbered else True
    if not is_scale or all(PLAIN.fullmatch(name) and name[-1:].isdigit() for name in classes):
        return []
    sign = -1 if any(rating and rating[1] == REVERSED for rating in ratings) else 1
    places = _sort([rating and sign * rating[0] for rating in ratings])
    return [classes[place] for place in places]


def _sort(steps: Sequence[float | None]) -> list[int]:
    """Return the places by their steps; nothing where one has none, or two have the same."""
    known = [step for step in steps if step is not None]
    if len(set(known)) < len(steps):
        return []
    return sorted(range(len(steps)), key=lambda place: known[place])
