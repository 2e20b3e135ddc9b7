"""Makes the stages of a graph where they belong: data by workers of one pool, training by those of
another; what takes no time, and the report, here.
"""

from collections.abc import Callable, Sequence
from functools import partial

from beam_jobs.core.errors import UserError
from flows.runner.pools.child_run import check_pool, make_in_pool
from flows.runner.pools.order import Order, write_order
from flows.runner.prefect_tasks import PrefectStageMaker, call_with_retries
from flows.runner.processes import JobFailed
from flows.runner.stage_runner import StageRunner
from flows.store.store import Stage

DATA_POOL = "cpu"
OF_DATA = {"corpus", "shards", "dev-shards", "vocabulary", "vocabulary-fit"}
"""Stages that the data pool makes."""
MADE_HERE = {"dump", "external", "origin", "report", "study"}
"""Stages that the run makes itself: they read what is only on its host, or take seconds."""
MLFLOW_SECONDS = 10.0
"""For the run in MLflow to exist, in which those of the stages are nested."""


def choose_pool(stage: Stage, training_pool: str) -> str:
    """Return the pool whose workers make a stage; empty: the run makes it."""
    if stage.name in MADE_HERE:
        return ""
    return DATA_POOL if stage.name in OF_DATA else training_pool


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
        super().__init__(runner, find_champion, after_stage, takes_accelerator=False)
        self._training_pool, self._device = training_pool, device

    def check_pools(self, planned: Sequence[Stage]) -> None:
        """Raise, before anything is made, why a pool that these stages need could not make them:
        it is not there, or its host has other code or no such device.
        """
        if "://" in self.store.address and not self.runner.tracking.uri.startswith("http"):
            raise UserError(
                "engine.placement=pools with a store in a bucket: set MLFLOW_TRACKING_URI to a "
                "server that all hosts reach (amazon-electra up has one)"
            )
        for pool in sorted({choose_pool(stage, self._training_pool) for stage in planned} - {""}):
            check_pool(pool)
            if pool != DATA_POOL and self._device not in ("auto", "cpu"):
                order = self._write_order(pool, [])
                call_with_retries(f"check of {pool}", partial(make_in_pool, pool, order))

    def make_chain(self, chain: Sequence[Stage]) -> None:
        """Have a worker of a pool make stages, and show how that goes."""
        pool = choose_pool(chain[0], self._training_pool)
        if not pool or all(self.store.manifest(stage) for stage in chain):
            super().make_chain(chain)
            return
        for stage in chain:
            self.runner.show_start(stage, f"in its run on the pool {pool}")
        try:
            make_in_pool(pool, self._write_order(pool, chain))
        except (JobFailed, UserError) as failure:
            for stage in chain:
                if self.store.manifest(stage):
                    self.runner.show_end(stage)
            self.runner.show_end(chain[0], str(failure))
            raise
        for stage in chain:
            self.runner.show_end(stage)

    def _write_order(self, pool: str, chain: Sequence[Stage]) -> Order:
        tracking = self.runner.tracking
        tracking.wait_until_sent(MLFLOW_SECONDS)
        return write_order(
            chain,
            self.store,
            device=self._device if pool != DATA_POOL else "",
            tags=dict(self.runner.tags),
            mlflow="" if "@" in tracking.uri else tracking.uri,  # no password into the form
            mlflow_run=tracking.parent.id,
        )
