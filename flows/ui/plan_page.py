"""A plan as it is shown: what is to do, and about how long it takes."""

from collections import Counter
from collections.abc import Iterator

from flows.runs.estimate import Estimate
from flows.runs.small_budget import find_small_budget

UNITS = ((86_400 * 2, 86_400, "days"), (5_400, 3_600, "h"), (90, 60, "min"))
"""From so many seconds on, so many make one of a unit."""
NAMES = {"pretraining": "pre-training", "finetuning": "fine-tuning"}


def format_duration(seconds: float) -> str:
    """Return seconds with the unit that a person would take."""
    for least, unit, name in UNITS:
        if seconds >= least:
            return f"{seconds / unit:,.{0 if seconds >= 10 * unit else 1}f} {name}"
    return f"{seconds:.0f} s"


def format_total(estimate: Estimate) -> str:
    """Return how much is to do and about how long it takes, in one line."""
    todo = len(estimate.todo)
    if not todo:
        return "nothing to do: every stage is complete"
    line = f"{todo} stages to do, about {format_duration(estimate.sum_seconds())}"
    if estimate.unknown:
        kinds = " and ".join(NAMES.get(kind, kind) for kind in sorted(estimate.unknown))
        line += f" without {kinds}: no run on this accelerator has told its speed yet"
    return line


def format_source(estimate: Estimate) -> str:
    """Return whose speeds the estimate goes by."""
    guessed = [NAMES.get(kind, kind) for kind in sorted(estimate.guessed)]
    if not guessed:
        return "by the speed of earlier stages in this store"
    if estimate.measured:
        return (
            "by the speed of earlier stages in this store; there was none of "
            f"{', '.join(guessed)} yet"
        )
    return (
        "by the speed of another machine, two cores of an AMD EPYC: no stage of this store has "
        "told this one's yet"
    )


def list_kinds(estimate: Estimate) -> Iterator[tuple[str, int, str]]:
    """Yield kind, number and time of the stages to do, in the order of the graph."""
    numbers = Counter(stage.name for stage in estimate.todo)
    for kind, n in numbers.items():
        took = [estimate.seconds[s.fingerprint] for s in estimate.todo if s.name == kind]
        known = [seconds for seconds in took if seconds is not None]
        time = format_duration(estimate.sum_seconds(kind)) if any(known) else "–"
        yield NAMES.get(kind, kind), n, time if known else "not known"


def render_plan(estimate: Estimate) -> str:
    """Return the plan as Markdown: the total, a row per kind of stage, what speaks against it."""
    rows = [f"| {kind} | {n} | {time} |" for kind, n, time in list_kinds(estimate)]
    table = ["| stages | to do | about |", "| --- | ---: | ---: |", *rows] if rows else []
    complete = sum(is_complete for _, is_complete in estimate.plan.stages)
    warning = find_small_budget(estimate.plan)
    return "\n".join(
        [
            f"**{format_total(estimate)}**, {format_source(estimate)}. {complete} stages are "
            "complete already.",
            "",
            *table,
            *(["", f"**Warning:** {warning}"] if warning else []),
        ]
    )
