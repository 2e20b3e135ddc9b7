"""What a graph is going to make: a line for each stage."""

from collections.abc import Sequence

from amazon_electra.flows.store.stage import Stage

Stages = Sequence[tuple[Stage, bool]]
"""Each once, and whether it is complete."""


def format_total(stages: Stages) -> str:
    """Return how many stages are to do, in one line."""
    complete = sum(is_complete for _, is_complete in stages)
    todo = len(stages) - complete
    if not todo:
        return "nothing to do: every stage is complete"
    return f"{todo} stage{'s' if todo > 1 else ''} to do, {complete} complete"


def list_lines(stages: Stages) -> list[str]:
    """Return a line for each stage: its state, kind, fingerprint and label; then the total."""
    lines = []
    for stage, is_complete in stages:
        state = "complete" if is_complete else "to do"
        lines.append(f"{state:<10}{stage.name:<24}{stage.fingerprint}  {stage.label}")
    return [*lines, format_total(stages)]
