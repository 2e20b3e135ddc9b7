"""A plan as it is shown: its stages, complete or to do, and the steps and tokens of a training."""

from collections import Counter

from flows.runner.stage_runner import Plan
from flows.runs.small_budget import count_training, find_small_budget
from flows.store.store import Stage

NAMES = {"pretraining": "pre-training", "finetuning": "fine-tuning"}


def format_total(plan: Plan) -> str:
    """Return how many stages are to do, in one line; a stage that two arms share counts once."""
    todo = len({stage.fingerprint for stage, is_complete in plan.stages if not is_complete})
    complete = len({stage.fingerprint for stage, is_complete in plan.stages if is_complete})
    if not todo:
        return "nothing to do: every stage is complete"
    return f"{todo} stage{'s' if todo > 1 else ''} to do, {complete} complete"


def list_lines(plan: Plan) -> list[str]:
    """Return a line for each stage: its state, kind, fingerprint and label, and what a training
    goes through; then the total, and what speaks against the plan.
    """
    lines = []
    for stage, is_complete in plan.stages:
        state, about = "complete" if is_complete else "to do", describe_training(stage)
        lines.append(f"{state:<10}{stage.name:<14}{stage.fingerprint}  {stage.label}{about}")
    lines.append(format_total(plan))
    if warning := find_small_budget(plan):
        lines.append(f"warning: {warning}")
    return lines


def describe_training(stage: Stage) -> str:
    """Return `, 6,000 steps, 24.6 M tokens` of a pre-training whose steps are known."""
    counted = count_training(stage) if stage.name == "pretraining" else None
    return f", {counted[0]:,} steps, {counted[1] / 1e6:,.1f} M tokens" if counted else ""


def render_plan(plan: Plan) -> str:
    """Return the plan as Markdown: the total, a row for each kind of stage, a line for each
    pre-training to do, what speaks against the plan.
    """
    stages = {stage.fingerprint: (stage, is_complete) for stage, is_complete in plan.stages}
    todo = Counter(stage.name for stage, is_complete in stages.values() if not is_complete)
    complete = Counter(stage.name for stage, is_complete in stages.values() if is_complete)
    kinds = dict.fromkeys(stage.name for stage, _ in stages.values())
    trainings = [
        f"- {stage.label}{about}"
        for stage, is_complete in stages.values()
        if not is_complete and (about := describe_training(stage))
    ]
    warning = find_small_budget(plan)
    return "\n".join(
        [
            f"**{format_total(plan)}**",
            "",
            "| stage | to do | complete |",
            "| --- | ---: | ---: |",
            *(f"| {NAMES.get(kind, kind)} | {todo[kind]} | {complete[kind]} |" for kind in kinds),
            *(["", *trainings] if trainings else []),
            *(["", f"**Warning:** {warning}"] if warning else []),
        ]
    )
