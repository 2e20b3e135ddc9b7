"""Makes the stages of a graph where they belong: data by workers of one pool, training by those of
another; what takes no time, and the report, here.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NoReturn
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import WorkerStatus
from prefect.context import TaskRunContext
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run
from prefect.states import Cancelling, Crashed, Failed, State
from pydantic import Field

from amazon_electra.beam_jobs.core.errors import (
    JobFailed,
    TransientError,
    UserError,
    describe_error,
    is_network_error,
)
from amazon_electra.beam_jobs.core.settings import Settings
from amazon_electra.flows.configuration.form import STORE
from amazon_electra.flows.runner.logs import find_run_logger
from amazon_electra.flows.runner.prefect_tasks import PrefectStageMaker, call_with_retries
from amazon_electra.flows.runner.processes import Makers, refuse_when_ending
from amazon_electra.flows.runner.stage_runner import StageRunner
from amazon_electra.flows.store.stage import Stage, read_request, write_request
from amazon_electra.flows.store.store import read_code_version

DATA_POOL = "cpu"
MLFLOW_SECONDS = 10.0
"""For the run in MLflow to exist, in which those of the stages are nested."""


def choose_pool(stage: Stage, training_pool: str) -> str:
    """Return the pool whose workers make a stage; empty: the run makes it."""
    return training_pool if stage.pool == "training" else stage.pool


class StageRequest(Settings):
    """What a worker of a pool is asked to make: the form of its flow, filled in by the run."""

    title: str = Field(default="stage", description="What it makes")
    make: list[str] = Field(
        default=[], description="Folders of the stages to make, in order; runs fill this in"
    )
    stages: dict[str, dict[str, Any]] = Field(
        default={}, description="By folder: those stages, and their inputs"
    )
    device: str = Field(default="", description="That must be there; empty: any will do")
    code: dict[str, str] = Field(default={}, description="Version of the run that waits")
    tags: dict[str, str] = Field(default={}, description="Of the runs in MLflow")
    mlflow: str = Field(default="", description="Address of the run's MLflow server")
    mlflow_run: str = Field(
        default="", description="Run of MLflow that those of the stages are nested in"
    )
    store: str = STORE

    def read_stages(self) -> list[Stage]:
        """Return the stages to make; UserError where this host's code is another than the run's."""
        ours = read_code_version()
        here, there = " ".join(ours.values()), " ".join(self.code.values())
        differs = f"this worker's code ({here}) is not the run's ({there}); install the same one"
        if {**self.code, **ours} != {**ours, **self.code}:
            raise UserError(differs)
        try:
            return [read_request(self.stages, path) for path in self.make]
        except ValueError as unknown:
            raise UserError(f"{differs}: {' '.join(str(unknown).split())}") from None


class PoolStageMaker(PrefectStageMaker):
    """Has workers of pools make the stages; holds no accelerator meanwhile."""

    def __init__(
        self,
        runner: StageRunner,
        training_pool: str,
        after_stage: Callable[[], None] = lambda: None,
        device: str = "auto",
    ):
        """`device`: that the trainings are to find on their host."""
        super().__init__(runner, after_stage, takes_accelerator=False)
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
                request = self._write_request(pool, [])
                call_with_retries(f"check of {pool}", partial(make_in_pool, pool, request))

    def make_chain(self, chain: Sequence[Stage], makers: Makers | None = None) -> None:
        """Have a worker of a pool make stages, and show how that goes."""
        pool = choose_pool(chain[0], self._training_pool)
        if not pool or all(self.store.manifest(stage) for stage in chain):
            super().make_chain(chain, makers)
            return
        for stage in chain:
            self.runner.notify("on_start", stage, f"in its run on the pool {pool}")
        try:
            make_in_pool(pool, self._write_request(pool, chain))
        except (JobFailed, UserError) as failure:
            for stage in chain:
                if self.store.manifest(stage):
                    self.runner.show_end(stage)
            self.runner.show_end(chain[0], str(failure))
            raise
        for stage in chain:
            self.runner.show_end(stage)

    def _write_request(self, pool: str, chain: Sequence[Stage]) -> StageRequest:
        """Return the request for these stages; without any it asks whether the host could make
        some.
        """
        tracking = self.runner.tracking
        tracking.wait_until_sent(MLFLOW_SECONDS)
        return StageRequest(
            title=chain[0].label if chain else "check",
            make=[stage.path for stage in chain],
            stages=write_request(chain),
            code=read_code_version(),
            store=self.store.address,
            device=self._device if pool != DATA_POOL else "",
            tags=dict(self.runner.tags),
            mlflow="" if "@" in tracking.uri else tracking.uri,  # no password into the form
            mlflow_run=tracking.parent.id,
        )


PAUSE_SECONDS = 1.0
"""Between two questions to the server, each of which costs it 22 ms of CPU."""
QUEUE_SECONDS = 60.0
"""After which a run's log says that no worker has taken what it waits for."""
PENDING_SECONDS = 180.0
"""From a worker's word that it takes a run to the run's own; from then on it has heartbeats."""


def name_deployment(pool: str) -> str:
    """Return the deployment by which a worker of the pool makes stages."""
    return f"run-stage/run-stage-{pool}"


def check_pool(pool: str) -> None:
    """Raise UserError if a pool is not there, cannot make stages, or has no worker that lives."""
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(pool)
            client.read_deployment_by_name(name_deployment(pool))
        except ObjectNotFound:
            raise UserError(
                f"the Prefect server at {client.api_url} has no pool "
                f"{pool} that makes stages: create it with sh deploy/deployments.sh",
                "engine.placement",
                "pools",
            ) from None
        workers = client.read_workers_for_work_pool(pool)
    if not any(worker.status == WorkerStatus.ONLINE for worker in workers):
        raise UserError(
            f"no worker of the pool {pool} is online: start one "
            f"(prefect worker start --type process --pool {pool})",
            "engine.placement",
            "pools",
        )


def make_in_pool(pool: str, request: StageRequest) -> None:
    """Return once a worker of the pool has made the stages; raise why it could not."""
    task = TaskRunContext.get()
    attempt = task.task_run.run_count if task else 0
    name = request.make[0] if request.make else "check"
    run: Any = run_deployment(
        name_deployment(pool),
        parameters=request.model_dump(mode="json", exclude_defaults=True),
        # a request that is sent twice starts one run
        idempotency_key=f"{flow_run.id}-{flow_run.run_count}-{pool}-{name}-{attempt}",
        timeout=0,
        as_subflow=True,
    )
    find_run_logger().info("%s: runs on a worker of the pool %s", request.title, pool)
    with cancel_on_error(run.id):
        state = wait_for_run(run.id, pool, request.title)
    if not state.is_completed():
        raise_failure(state, pool, request.title)


@contextmanager
def cancel_on_error(run: UUID) -> Iterator[None]:
    """Cancel a run when the block is left by an exception, unless it is over."""
    try:
        yield
    except BaseException:
        with suppress(Exception), get_client(sync_client=True) as client:
            state = client.read_flow_run(run).state
            if state is None or not state.is_final():
                client.set_flow_run_state(run, Cancelling())
        raise


def wait_for_run(run: UUID, pool: str, title: str) -> Any:
    """Return the last state of a run. One that a worker took and never began is Crashed."""
    queued, pending = time.monotonic(), 0.0
    with get_client(sync_client=True) as client:
        while True:
            refuse_when_ending()
            try:
                state: Any = client.read_flow_run(run).state
                if state.is_final():
                    return state
                now = time.monotonic()
                if state.is_scheduled() and now - queued > QUEUE_SECONDS:
                    find_run_logger().warning("%s: no worker of the pool %s is free", title, pool)
                    queued = now + 3600.0  # logged hourly
                pending = (pending or now) if state.is_pending() else 0.0
                if pending and now - pending > PENDING_SECONDS:
                    lost: Any = Crashed(message="the worker that took it never began it")
                    client.set_flow_run_state(run, lost, force=True)
            except httpx.HTTPError as away:  # that stops no worker
                find_run_logger().warning("the Prefect server does not answer: %s", away)
            time.sleep(PAUSE_SECONDS)


def raise_failure(state: Any, pool: str, title: str) -> NoReturn:
    """Raise why a run on a pool ended, in one line; `build_failed_state` is what a worker says."""
    message = " ".join((state.message or "").split())
    if state.is_crashed():
        raise TransientError(f"{title}: its worker of the pool {pool} was lost: {message}")
    if state.is_cancelled():
        raise JobFailed(f"{title}: its run on the pool {pool} was cancelled")
    if state.name == USERS_MISTAKE:
        raise UserError(message)
    if state.name == MAY_PASS:
        raise TransientError(f"{title}: its worker of the pool {pool}: {message}")
    raise JobFailed(message)


USERS_MISTAKE, MAY_PASS = "Mistake", "FailedForNow"
"""Names of Failed states by which a worker says what kind of error ended it."""


def build_failed_state(error: Exception) -> State:
    """Return the state in which a worker's run ends by an error, in one line."""
    name = USERS_MISTAKE if isinstance(error, UserError) else None
    name = MAY_PASS if is_network_error(error) else name
    return Failed(name=name, message=describe_error(error))
