"""Names the runs of flows: dump, what is made of it, and date."""

from typing import Any

from prefect.runtime import flow_run

from flows.stages import dump


def name_run_by_preset() -> str:
    """Return the name of a run of a flow with a preset."""
    return name_run(flow_run.parameters.get("preset", "tiny"))


def name_run(what: str) -> str:
    """Return dump, what is made of it, and date: what one looks for in a list of runs."""
    name = dump.name_dump(read_flow_parameter("dump", "paths", ["dump"]))
    return f"{name} · {what} · {flow_run.scheduled_start_time:%Y-%m-%d %H:%M}"


def read_flow_parameter(section: str, field: str, default: Any) -> Any:
    """Return a field of a parameter of this flow run.

    Prefect asks for the name of a run before it validates the parameters: they may be plain
    dictionaries or models.
    """
    value = flow_run.parameters.get(section)
    return value.get(field, default) if isinstance(value, dict) else getattr(value, field, default)
