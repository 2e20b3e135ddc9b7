"""Makes the stages of a graph in Prefect tasks: one task per stage, retried where that may help."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate
from prefect.concurrency.sync import concurrency
from prefect.context import FlowRunContext
from prefect.exceptions import ObjectAlreadyExists

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.flows.runner.logs import find_run_logger
from amazon_electra.flows.runner.processes import Terminated
from amazon_electra.flows.runner.stage_runner import StageRunner, allocate_threads
from amazon_electra.flows.store.stage import Group, Groups, Stage
from amazon_electra.model.children import GRACE_SECONDS

T = TypeVar("T")
RETRY_DELAYS = [10.0, 60.0, 300.0]  # seconds: for a network, a service, a machine to come back
ACCELERATOR = "accelerator"  # Prefect's limit of runs that train at the same time: one
LEASE_SECONDS = 60.0  # for which a killed run still holds it: the least that Prefect takes


def is_transient_failure(task: Any, run: Any, state: Any) -> bool:
    """Return whether another attempt may pass: after a lost connection or a killed process."""
    failure = state.result(raise_on_failure=False)
    return isinstance(failure, TransientError | ConnectionError | TimeoutError)


def create_task(function: Callable[[], Any], name: str, run_name: str) -> Any:
    """Return a task that is tried again after `RETRY_DELAYS`, where `is_transient_failure`."""
    return Task(
        function,
        name=name,
        task_run_name=run_name,
        retries=len(RETRY_DELAYS),
        retry_delay_seconds=RETRY_DELAYS,
        retry_jitter_factor=0.5,
        retry_condition_fn=is_transient_failure,
        cache_policy=NO_CACHE,
        persist_result=False,
    )


def call_with_retries(name: str, function: Callable[[], T]) -> T:
    """Return what another server answers; in a flow a task of this name asks, with retries."""
    if FlowRunContext.get() is None:
        return function()
    answer: T = create_task(lambda: function(), name, name)()
    return answer


class PrefectStageMaker:
    """Makes each chain of stages in a Prefect task of its first one's name."""

    def __init__(self, runner: StageRunner, takes_accelerator: bool = False):
        """`takes_accelerator`: trainings wait for the machine's one accelerator."""
        self.runner, self.store = runner, runner.store
        self.stages: list[Stage] = []
        self.failed: dict[str, Exception] = {}  # by the label of a stage
        self.is_stopped = False  # by Ctrl-C, so that it kept the best so far
        self._takes_accelerator = takes_accelerator

    def make_graph(self, groups: Groups, notes: Sequence[str] = ()) -> Stage:
        """Make each group before the next is asked for; return the last stage. Log what the graph
        adds to `notes`. It learns what failed, and Ctrl-C, after which it may go on.
        """
        logged = 0
        try:
            with suppress(StopIteration):
                group = next(groups)
                while True:
                    for note in notes[logged:]:
                        find_run_logger().warning("%s", note)
                    logged = len(notes)
                    try:
                        failed = self.make_group(group)
                    except Terminated:
                        raise
                    except KeyboardInterrupt as stopped:
                        self.is_stopped = True
                        group = groups.throw(stopped)
                        self.runner.is_ending = False
                        continue
                    if failed and not group.may_fail:
                        first = next(iter(failed.values()))
                        if len(failed) > 1 and isinstance(first, JobFailed | UserError):
                            total = f"{len(failed)} of {len(group.chains)} failed"
                            raise type(first)(f"{total}; the first: {first}")
                        raise first
                    group = groups.send(failed)
        finally:
            self.runner.end()
        return self.stages[-1]

    def make_group(self, group: Group) -> dict[str, Exception]:
        """Make the chains of a group in their order, each after those that it is made of. Return
        why some failed, by the path of the first stage, without those to be made of them.
        """
        waiting = allocate_threads(group.chains, group.at_once)
        stages = [stage for chain in waiting for stage in chain]
        self.stages += stages
        unmade = {stage.path for stage in stages}
        futures, running = dict[str, Any](), dict[Any, list[Stage]]()
        over, failed = SimpleQueue[Any](), dict[str, Exception]()
        is_held = self._takes_accelerator and any(
            stage.takes_accelerator and not self.store.manifest(stage) for stage in stages
        )
        try:
            with hold_accelerator() if is_held else nullcontext():
                while waiting or running:
                    ready = [chain for chain in waiting if not list_sources(chain) & unmade]
                    if ready and len(running) < group.at_once:
                        waiting.remove(chain := ready[0])
                        made = [futures[path] for path in list_sources(chain) & futures.keys()]
                        future = self._create_task(chain).submit(wait_for=made)
                        futures |= {stage.path: future for stage in chain}
                        running[future] = chain
                        future.add_done_callback(over.put)
                        continue
                    future = over.get()
                    future.wait()
                    chain = running.pop(future)
                    unmade -= {stage.path for stage in chain}
                    if future.state.is_completed() or future.state.name == "NotReady":
                        continue
                    error = future.result(raise_on_failure=False)
                    if not isinstance(error, Exception):
                        raise error
                    failed[chain[0].path] = self.failed[chain[0].label] = error
        except BaseException:
            self.runner.end()
            raise
        finally:
            for future in running:  # their children have ended
                future.wait(GRACE_SECONDS)
        return failed

    def _create_task(self, chain: Sequence[Stage]) -> Any:
        name, label = chain[0].name, chain[0].label.replace("{", "(")
        return create_task(lambda: self.runner.complete_chain(chain), name, label)


def list_sources(chain: Sequence[Stage]) -> set[str]:
    """Return the paths of the stages that a chain is made of."""
    sources = {source.path for stage in chain for source in stage.inputs.values()}
    return sources - {stage.path for stage in chain}


@contextmanager
def hold_accelerator() -> Iterator[None]:
    """Hold the machine's one accelerator, once no other run does."""
    find_run_logger().info("the accelerator is taken as soon as no other run holds it")
    with get_client(sync_client=True) as client, suppress(ObjectAlreadyExists):
        limit = GlobalConcurrencyLimitCreate(name=ACCELERATOR, limit=1)
        client.create_global_concurrency_limit(limit)
    with concurrency(ACCELERATOR, lease_duration=LEASE_SECONDS):
        yield
