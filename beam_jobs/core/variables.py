"""Reads environment variables that set something for every run of a machine."""

import math
import os

from amazon_electra.beam_jobs.core.errors import UserError


def read_names(variable: str) -> list[str]:
    """Return the names in an environment variable, separated by commas there."""
    names = os.environ.get(variable, "").split(",")
    return [name.strip().lower() for name in names if name.strip()]


def read_number_variable(name: str, default: float, smallest: float, unit: str) -> float:
    """Return the number in an environment variable, or the default where it is not set."""
    text = os.environ.get(name, "")
    try:
        number = float(text or default)
    except ValueError:
        number = math.nan
    if not number >= smallest:
        raise UserError(f"{name} is {text!r}: write a number of {unit} from {smallest:g}")
    return number
