"""Makes the stages of a graph where they belong: data by workers of one pool, training by those of
another; what takes no time, and the report, here.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from prefect.task_runners import ThreadPoolTaskRunner

from beam_jobs.job.errors import UserError
from flows.runner.pools.child_run import WorkerRun, make_in_pool
from flows.runner.pools.order import Chains, Order
from flows.runner.prefect_tasks import (
    PrefectStageMaker,
    add_retries,
    raise_failures,
    retried_task,
)
from flows.runner.processes import JobFailed, end_children_on_error
from flows.runner.stage_runner import StageRunner
from flows.runner.store import Stage

Planned = Sequence[tuple[Stage, float | None]]
"""The stages that a run makes, in order, and about how many seconds each takes, where known."""
DATA_POOL = "cpu"
OF_DATA = {"corpus", "shards", "dev-shards", "vocabulary", "vocabulary-fit"}
"""Stages that the data pool makes."""
MADE_HERE = {"dump", "external", "origin", "report", "study"}
"""Stages that the run makes itself: they read what is only on its host, or take seconds."""
MLFLOW_SECONDS = 10.0
"""For the run in MLflow to exist, in which those of the stages are nested."""
SOON_SECONDS = 30.0
"""So far ahead, as the plan tells, a worker's next order may be for its run to stay: less than it
waits, and little more than another process would cost.
"""


def choose_pool(stage: Stage, training_pool: str) -> str:
    """Return the pool whose workers make a stage; empty: the run makes it."""
    if stage.name in MADE_HERE:
        return ""
    return DATA_POOL if stage.name in OF_DATA else training_pool


def is_soon_needed(pool: str, planned: Planned, training_pool: str) -> bool:
    """Return whether a pool makes one of these stages soon."""
    ahead = 0.0
    for stage, seconds in planned:
        if choose_pool(stage, training_pool) == pool:
            return True
        ahead += inf if seconds is None else seconds
        if ahead > SOON_SECONDS:
            return False
    return False


@retried_task()
def make_elsewhere(
    runner: StageRunner, pool: str, order: Order, staying: dict[str, WorkerRun]
) -> None:
    """Have a worker of a pool make stages, and show how that goes."""
    stages = order.stages
    for stage in stages:
        runner.show_start(stage, f"in its run on the pool {pool}")
    try:
        make_in_pool(runner.store, pool, order, staying)
    except (JobFailed, UserError) as failure:
        for stage in stages:
            if runner.store.manifest(stage):
                runner.show_end(stage)
        runner.show_end(stages[0], str(failure))
        raise
    for stage in stages:
        runner.show_end(stage)


@retried_task()
def check_pool(runner: StageRunner, pool: str, order: Order, staying: dict[str, WorkerRun]) -> None:
    """Have a worker of a pool try whether it could make stages of this run."""
    make_in_pool(runner.store, pool, order, staying)


class PoolStageMaker(PrefectStageMaker):
    """Has workers of pools make the stages (a `StageMaker`); holds no accelerator meanwhile."""

    def __init__(
        self,
        runner: StageRunner,
        training_pool: str,
        find_champion: Callable[[], Stage | None] = lambda: None,
        after_stage: Callable[[], None] = lambda: None,
        device: str = "auto",
    ):
        """`device`: that the trainings are to find on their host."""
        super().__init__(runner, find_champion, after_stage)
        self._training_pool, self._device = training_pool, device
        self._planned: Planned = ()
        self._staying: dict[str, WorkerRun] = {}

    def __call__(self, stage: Stage) -> Stage:
        pool = self._find_pool([stage])
        if not pool:
            return super().__call__(stage)
        self.stages.append(stage)
        order = self._write_order(pool, [[stage]], 1)
        self._create_pool_task([[stage]])(self.runner, pool, order, self._staying)
        self._after_stage()
        return stage

    def make_chains(self, chains: Chains, at_once: int) -> None:
        """Make all chains; those of one pool are one order, which their worker divides up.

        Chains of different pools do not wait for one another: none is made of what the other makes.
        """
        parts: dict[str, list[Sequence[Stage]]] = defaultdict(list)
        for chain in chains:
            parts[self._find_pool(chain)].append(chain)
        if here := parts.pop("", []):
            super().make_chains(here, at_once)
        if not parts:
            return
        self.stages += [stage for part in parts.values() for chain in part for stage in chain]
        pool: ThreadPoolTaskRunner[None] = ThreadPoolTaskRunner(max_workers=len(parts))
        with pool as task_runner, end_children_on_error():
            futures: list[Any] = []
            for name, part in parts.items():
                order = self._write_order(name, part, at_once)
                arguments = self._give(name, order)
                futures.append(task_runner.submit(self._create_pool_task(part), arguments))
            raise_failures(futures)

    def check_pools(self, planned: Planned) -> None:
        """Raise, before anything is made, why a pool that these stages need could not make them:
        its host does not see the store, has other code, or no such device.

        By the plan a worker's run stays for what comes next.
        """
        self._planned = planned
        pools = sorted({pool for stage, _ in planned if (pool := self._find_pool([stage]))})
        if not pools:
            return
        tasks: ThreadPoolTaskRunner[None] = ThreadPoolTaskRunner(max_workers=len(pools))
        with tasks as task_runner, end_children_on_error():
            futures = []
            for pool in pools:
                name = f"check of {pool}"
                one = add_retries(check_pool).with_options(name=name, task_run_name=name)
                order = Order(device=self._find_device(pool), stays=self._stays(pool))
                futures.append(task_runner.submit(one, self._give(pool, order)))
            raise_failures(futures)

    def _give(self, pool: str, order: Order) -> dict[str, Any]:
        """Return the arguments of a task."""
        return {"runner": self.runner, "pool": pool, "order": order, "staying": self._staying}

    def _find_device(self, pool: str) -> str:
        return self._device if pool != DATA_POOL else ""

    def _stays(self, pool: str) -> bool:
        """Return whether a worker's run stays for another order of this run."""
        begun = {stage.fingerprint for stage in self.stages}
        left = [one for one in self._planned if one[0].fingerprint not in begun]
        return is_soon_needed(pool, left, self._training_pool)

    def _find_pool(self, chain: Sequence[Stage]) -> str:
        """Return the pool that makes a chain; empty where it is complete, or made here."""
        if all(self.store.manifest(stage) for stage in chain):
            return ""
        return choose_pool(chain[0], self._training_pool)

    def _write_order(self, pool: str, chains: Chains, at_once: int) -> Order:
        tracking = self.runner.tracking
        tracking.wait_until_sent(MLFLOW_SECONDS)
        return Order(
            chains,
            at_once,
            self._find_device(pool),
            self._stays(pool),
            tags=dict(self.runner.tags),
            mlflow="" if "@" in tracking.uri else tracking.uri,  # no password into the store
            mlflow_run=tracking.parent.id,
        )

    def _create_pool_task(self, chains: Chains) -> Any:
        first = chains[0][0]
        name = f"{first.name} side by side" if len(chains) > 1 else first.name
        label = name if len(chains) > 1 else first.label.replace("{", "(")
        return add_retries(make_elsewhere).with_options(name=name, task_run_name=label)
