"""Tasks of a study that differ in the number of labels alone: points of one line against it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

NAMED = {"name", "title", "n_train", "epochs"}
"""What tasks of one line may differ in: more labels need fewer epochs."""


def lines(tasks: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, str]]:
    """Line → number of labels → name of the task; `tasks` as in study.json. A line has at least two points.

    A line is called after its task and whatever its settings say that those of another line of the task do not.
    """
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for task in tasks:
        if task.get("n_train"):
            grouped.setdefault(_same(task), []).append(task)
    groups = [part for group in grouped.values() for part in _without_ties(group)]
    several = [group for group in groups if len(group) > 1]
    return {_title(group[0], groups): {int(t["n_train"]): t["name"] for t in _ordered(group)} for group in several}


def _ordered(group: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(group, key=lambda task: int(task["n_train"]))


def _same(task: Mapping[str, Any]) -> str:
    return json.dumps({name: value for name, value in task.items() if name not in NAMED}, sort_keys=True, default=str)


def _without_ties(group: list[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Where two have the same number of labels, what differs is their epochs: each number of epochs is a line."""
    if len({task["n_train"] for task in group}) == len(group):
        return [group]
    by_epochs: dict[str, list[Mapping[str, Any]]] = {}
    for task in group:
        by_epochs.setdefault(str(task.get("epochs")), []).append(task)
    return list(by_epochs.values())


def _title(task: Mapping[str, Any], groups: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """For example `polarity, pooling cls`, where another line has mean pooling."""
    others = [group[0] for group in groups if group[0]["task"] == task["task"]]
    tied = sum(_same(other) == _same(task) for other in others) > 1
    names = [name for name in task if name not in NAMED | {"task"} or (tied and name == "epochs")]
    told = [f"{n} {task[n]}" for n in names if any(other.get(n) != task[n] for other in others)]
    return ", ".join([str(task["task"]), *told])
