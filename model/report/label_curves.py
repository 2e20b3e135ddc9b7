"""Groups the tasks of a study that differ in the number of labels alone: points of one line."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

VARYING_SETTINGS = {"name", "title", "n_train", "epochs"}
"""Settings in which tasks of one line may differ: more labels need fewer epochs."""


def group_label_curves(tasks: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, str]]:
    """Return the tasks of each line by their number of labels, at least two a line.

    `tasks` are those of study.json. A line's title is its task and the settings by which it differs
    from another line of the task.
    """
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for task in tasks:
        if task.get("n_train"):
            grouped.setdefault(_encode_shared_settings(task), []).append(task)
    groups = [part for group in grouped.values() for part in _split_by_epochs(group)]
    several = [group for group in groups if len(group) > 1]
    return {
        _compose_title(group[0], groups): {
            int(t["n_train"]): t["name"] for t in _sort_by_labels(group)
        }
        for group in several
    }


def _sort_by_labels(group: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(group, key=lambda task: int(task["n_train"]))


def _encode_shared_settings(task: Mapping[str, Any]) -> str:
    return json.dumps(
        {name: value for name, value in task.items() if name not in VARYING_SETTINGS},
        sort_keys=True,
        default=str,
    )


def _split_by_epochs(group: list[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return a line for each number of epochs where two tasks have the same number of labels."""
    if len({task["n_train"] for task in group}) == len(group):
        return [group]
    by_epochs: dict[str, list[Mapping[str, Any]]] = {}
    for task in group:
        by_epochs.setdefault(str(task.get("epochs")), []).append(task)
    return list(by_epochs.values())


def _compose_title(task: Mapping[str, Any], groups: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """Return for example `polarity, pooling cls`, where another line has mean pooling."""
    others = [group[0] for group in groups if group[0]["task"] == task["task"]]
    tied = sum(_encode_shared_settings(o) == _encode_shared_settings(task) for o in others) > 1
    names = [n for n in task if n not in VARYING_SETTINGS | {"task"} or (tied and n == "epochs")]
    differing = [name for name in names if any(other.get(name) != task[name] for other in others)]
    return ", ".join([str(task["task"]), *(f"{name} {task[name]}" for name in differing)])
