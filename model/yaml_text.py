"""Reads YAML that others wrote."""

from typing import Any

import yaml


def load_yaml(text: str) -> Any:
    """Return what YAML says; ValueError where it is none."""
    try:
        return yaml.safe_load(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
