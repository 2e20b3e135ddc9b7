"""Names the runs of flows: dump, what is made of it, and date, or what people typed in the form."""

import re
from typing import Any

from prefect.runtime import flow_run

from flows.stages import dump

GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma "
    "tau upsilon phi chi psi omega"
)
PROPOSED = re.compile(rf"({GREEK.replace(' ', '|')})\d*(-[a-z-]+)?|[a-z]+-[a-z]+")
"""What Prefect proposes: its form a Greek letter and stars (no deployment can set another
default), its API two words."""


def name_run_by_preset() -> str:
    """Return the name of a run of a flow with a preset."""
    return name_run(flow_run.parameters.get("preset", "tiny"))


def name_run(*what: str, reads_dump: bool = True) -> str:
    """Return dump, what is made of it, and date: what one looks for in a list of runs.

    A name that somebody typed in the form stays, and so does that of a run which goes on.
    """
    if (given := str(flow_run.name or "")) and not PROPOSED.fullmatch(given):
        return given
    parts = [dump.name_dump(read_flow_parameter("dump", "paths", ["dump"]))] if reads_dump else []
    return " · ".join([*parts, *what, f"{flow_run.scheduled_start_time:%Y-%m-%d %H:%M}"])


def read_flow_parameter(section: str, field: str, default: Any) -> Any:
    """Return a field of a parameter of this flow run.

    Prefect asks for the name of a run before it validates the parameters: they may be plain
    dictionaries or models.
    """
    value = flow_run.parameters.get(section)
    return value.get(field, default) if isinstance(value, dict) else getattr(value, field, default)
