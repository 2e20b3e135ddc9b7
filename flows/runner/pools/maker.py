"""Makes the stages of a graph where they belong: data by workers of one pool, training by those of
another; what takes no time, and the report, here.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.task_runners import ThreadPoolTaskRunner

from beam_jobs.job.errors import UserError
from flows.runner.pools.child_run import make_in_pool
from flows.runner.pools.order import Order
from flows.runner.prefect_tasks import (
    PrefectStageMaker,
    add_retries,
    is_transient_failure,
    raise_failures,
)
from flows.runner.processes import JobFailed, end_children_on_error
from flows.runner.stage_runner import StageRunner
from flows.runner.store import Stage

DATA_POOL = "cpu"
OF_DATA = {"corpus", "shards", "vocabulary", "vocabulary-fit"}
"""Stages that the data pool makes."""
MADE_HERE = {"dump", "external", "origin", "report", "study"}
"""Stages that the run makes itself: they read what is only on its host, or take seconds."""
MLFLOW_SECONDS = 10.0
"""For the run in MLflow to exist, in which those of the stages are nested."""
Chains = Sequence[Sequence[Stage]]


def choose_pool(stage: Stage, training_pool: str) -> str:
    """Return the pool whose workers make a stage; empty: the run makes it."""
    if stage.name in MADE_HERE:
        return ""
    return DATA_POOL if stage.name in OF_DATA else training_pool


@task(
    retry_jitter_factor=0.5,
    retry_condition_fn=is_transient_failure,
    cache_policy=NO_CACHE,
    persist_result=False,
)
def make_elsewhere(runner: StageRunner, pool: str, order: Order) -> None:
    """Have a worker of a pool make stages, and show how that goes."""
    stages = order.stages
    for stage in stages:
        runner.show_start(stage, f"in its run on the pool {pool}")
    try:
        make_in_pool(runner.store, pool, order)
    except (JobFailed, UserError) as failure:
        for stage in stages:
            if runner.store.manifest(stage):
                runner.show_end(stage)
        runner.show_end(stages[0], str(failure))
        raise
    for stage in stages:
        runner.show_end(stage)


@task(
    retry_jitter_factor=0.5,
    retry_condition_fn=is_transient_failure,
    cache_policy=NO_CACHE,
    persist_result=False,
)
def check_pool(runner: StageRunner, pool: str, order: Order) -> None:
    """Have a worker of a pool try whether it could make stages of this run."""
    make_in_pool(runner.store, pool, order)


class PoolStageMaker(PrefectStageMaker):
    """Has workers of pools make the stages (a `StageMaker`); holds no accelerator meanwhile."""

    def __init__(
        self,
        runner: StageRunner,
        training_pool: str,
        find_champion: Callable[[], Stage | None] = lambda: None,
        after_stage: Callable[[], None] = lambda: None,
    ):
        super().__init__(runner, find_champion, after_stage)
        self._training_pool = training_pool

    def __call__(self, stage: Stage) -> Stage:
        pool = self._find_pool([stage])
        if not pool:
            return super().__call__(stage)
        self.stages.append(stage)
        self._create_pool_task([[stage]])(self.runner, pool, self._write_order([[stage]], 1))
        self._after_stage()
        return stage

    def make_side_by_side(self, chains: Chains, at_once: int) -> None:
        """Make all chains; those of one pool are one order, which their worker divides up.

        Chains of different pools do not wait for one another: none is made of what the other makes.
        """
        parts: dict[str, list[Sequence[Stage]]] = defaultdict(list)
        for chain in chains:
            parts[self._find_pool(chain)].append(chain)
        if here := parts.pop("", []):
            super().make_side_by_side(here, at_once)
        if not parts:
            return
        self.stages += [stage for part in parts.values() for chain in part for stage in chain]
        pool: ThreadPoolTaskRunner[None] = ThreadPoolTaskRunner(max_workers=len(parts))
        with pool as task_runner, end_children_on_error():
            futures: list[Any] = []
            for name, part in parts.items():
                order = self._write_order(part, at_once)
                arguments = {"runner": self.runner, "pool": name, "order": order}
                futures.append(task_runner.submit(self._create_pool_task(part), arguments))
            raise_failures(futures)

    def check_pools(self, stages: Sequence[Stage], device: str) -> None:
        """Raise, before anything is made, why a pool that these stages need could not make them:
        its host does not see the store, has other code, or no such device.
        """
        pools = sorted({pool for stage in stages if (pool := self._find_pool([stage]))})
        if not pools:
            return
        tasks: ThreadPoolTaskRunner[None] = ThreadPoolTaskRunner(max_workers=len(pools))
        with tasks as task_runner, end_children_on_error():
            futures = []
            for pool in pools:
                name, wanted = f"check of {pool}", device if pool != DATA_POOL else ""
                one = add_retries(check_pool).with_options(name=name, task_run_name=name)
                arguments = {"runner": self.runner, "pool": pool, "order": Order(device=wanted)}
                futures.append(task_runner.submit(one, arguments))
            raise_failures(futures)

    def _find_pool(self, chain: Sequence[Stage]) -> str:
        """Return the pool that makes a chain; empty where it is complete, or made here."""
        if all(self.store.manifest(stage) for stage in chain):
            return ""
        return choose_pool(chain[0], self._training_pool)

    def _write_order(self, chains: Chains, at_once: int) -> Order:
        tracking = self.runner.tracking
        tracking.wait_until_sent(MLFLOW_SECONDS)
        return Order(
            chains,
            at_once,
            tags=dict(self.runner.tags),
            mlflow="" if "@" in tracking.uri else tracking.uri,  # no password into the store
            mlflow_run=tracking.parent.id,
        )

    def _create_pool_task(self, chains: Chains) -> Any:
        first = chains[0][0]
        name = f"{first.name} side by side" if len(chains) > 1 else first.name
        label = name if len(chains) > 1 else first.label.replace("{", "(")
        return add_retries(make_elsewhere).with_options(name=name, task_run_name=label)
