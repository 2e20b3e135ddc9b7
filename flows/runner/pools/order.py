"""An order: the stages that a run has a worker of another pool make. It lies in the store while
that worker needs it, which also shows that both see the same store.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from beam_jobs.job.errors import UserError
from flows.runner.pools.stage_json import decode_stages, encode_stages
from flows.runner.store import Stage, Store, read_code_version

FOLDER = "orders"
"""Of the store."""
Chains = Sequence[Sequence[Stage]]


@dataclass(frozen=True)
class Order:
    """What is to be made, and what whoever makes it has to know of the run."""

    chains: Chains = ()
    """Each is made in its order; empty: only whether this host could make something."""
    at_once: int = 1
    """How many chains are made side by side."""
    device: str = ""
    """What it trains on; empty: nothing is trained."""
    stays: bool = False
    """Whether who makes it waits for another order."""
    tags: dict[str, str] = field(default_factory=dict)
    """Of the runs in MLflow."""
    mlflow: str = ""
    """Address of the MLflow server, as the run sees it."""
    mlflow_run: str = ""
    """The run of MLflow that the stages are nested in."""

    @property
    def stages(self) -> list[Stage]:
        return [stage for chain in self.chains for stage in chain]

    @property
    def title(self) -> str:
        """Return what it makes, in a few words."""
        if not self.chains:
            return "check"
        more = f" and {len(self.chains) - 1} beside" if len(self.chains) > 1 else ""
        return f"{self.stages[0].label}{more}"


def write_order(store: Store, name: str, order: Order) -> None:
    """Put an order into the store; `remove_order` takes it out again."""
    about = {
        "code": read_code_version(),
        "fingerprints": [stage.fingerprint for stage in order.stages],
        "chains": [len(chain) for chain in order.chains],
        **encode_stages(order.stages, store.root),
        **{name: getattr(order, name) for name in PLAIN},
    }
    store.place.write(f"{FOLDER}/{name}/order.json", json.dumps(about).encode())


PLAIN = ("at_once", "device", "stays", "tags", "mlflow", "mlflow_run")
"""Fields that are JSON as they are."""


def remove_order(store: Store, name: str) -> None:
    store.place.remove(f"{FOLDER}/{name}")


def read_order(store: Store, name: str) -> Order:
    """Return an order; UserError where it is not in the store that this host sees, or where this
    host's code would make something else.
    """
    content = store.place.read(f"{FOLDER}/{name}/order.json")
    if content is None:
        raise UserError(
            f"store {store.address}: this host does not see what the run wrote there: all need "
            "the same bucket, or a folder that they share"
        )
    told = json.loads(content)
    try:
        stages = iter(decode_stages(told, store.root))
    except ValidationError as unknown:
        first = unknown.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise describe_difference(told, f"{unknown.title}: {where}: {first['msg']}") from None
    except (KeyError, TypeError, ValueError) as unknown:
        raise describe_difference(told, " ".join(str(unknown).split())) from None
    chains = [[next(stages) for _ in range(length)] for length in told["chains"]]
    order = Order(chains, **{name: told[name] for name in PLAIN})
    for stage, fingerprint in zip(order.stages, told["fingerprints"], strict=True):
        if stage.fingerprint != fingerprint:
            raise describe_difference(
                told, f"{stage.label} is {stage.fingerprint} here and {fingerprint} there"
            )
    return order


def describe_difference(told: dict[str, Any], what: str) -> UserError:
    """Return the error of a host with other code than the run's."""
    here, there = (" ".join(code.values()) for code in (read_code_version(), told["code"]))
    return UserError(
        f"this worker's code ({here}) is not the run's ({there}): {what}; install the same version"
    )
