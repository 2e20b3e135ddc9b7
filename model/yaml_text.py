"""Reads YAML that others wrote."""

from typing import Any

import yaml

MAX_YAML_NODES = 100_000
"""Of a YAML file, each alias counted with all that it stands for: a few lines can say billions."""


def load_yaml(text: str) -> Any:
    """Return what YAML says; ValueError where it is none, or refers to itself or says too much."""
    try:
        _count_nodes(yaml.compose(text, Loader=yaml.SafeLoader), {})
        return yaml.safe_load(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def _count_nodes(node: Any, known: dict[int, int]) -> int:
    """Return how many nodes there are without aliases; a node under way counts 0 in `known`."""
    if node is None or isinstance(node.value, str):
        return 1
    if id(node) not in known:
        known[id(node)] = 0
        parts = [p for item in node.value for p in (item if isinstance(item, tuple) else [item])]
        known[id(node)] = 1 + sum(_count_nodes(part, known) for part in parts)
    if not known[id(node)]:
        raise ValueError(f"line {node.start_mark.line + 1} refers to itself")
    if known[id(node)] > MAX_YAML_NODES:
        raise ValueError(
            f"line {node.start_mark.line + 1} stands for more than {MAX_YAML_NODES:,} values "
            "(aliases)"
        )
    return known[id(node)]
