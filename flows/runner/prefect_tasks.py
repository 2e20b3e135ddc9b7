"""Makes the stages of a graph in Prefect tasks: one task per stage, retried where that may help."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.transactions import CommitMode, transaction

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.flows.runner.logs import find_run_logger
from amazon_electra.flows.runner.processes import (
    Makers,
    Terminated,
    allow_jobs,
    end_children_on_error,
)
from amazon_electra.flows.runner.stage_runner import StageRunner, allocate_threads
from amazon_electra.flows.store.group import Groups
from amazon_electra.flows.store.stage import ACCELERATOR, Stage

T = TypeVar("T")
Failures = list[tuple[Stage, Exception]]
"""Stages with why they failed."""


class NotTried(JobFailed):
    """A stage whose inputs failed."""


RETRY_DELAYS = [10.0, 60.0, 300.0]
"""Seconds: a network hiccup, a restarted service, a pre-empted machine that comes back."""


def is_transient_failure(task: Any, run: Any, state: Any) -> bool:
    """Return whether another attempt may mend a failed task: a lost connection or a killed process
    may, a bug or bad input does not.
    """
    try:
        state.result()
    except (TransientError, ConnectionError, TimeoutError) as failure:
        if run.run_count <= len(RETRY_DELAYS):
            find_run_logger().warning("tried again after attempt %d: %s", run.run_count, failure)
        return True
    except BaseException:
        return False
    return False


def create_task(
    function: Callable[..., Any], name: str, run_name: str = "", tags: Sequence[str] = ()
) -> Any:
    """Return a task that is tried again after `RETRY_DELAYS`, where `is_transient_failure`."""
    return Task(
        function,
        name=name,
        task_run_name=run_name or name,
        tags=tags,
        retries=len(RETRY_DELAYS),
        retry_delay_seconds=RETRY_DELAYS,
        retry_jitter_factor=0.5,
        retry_condition_fn=is_transient_failure,
        cache_policy=NO_CACHE,
        persist_result=False,
    )


@task(cache_policy=NO_CACHE, persist_result=False)
def make_together(make: Callable[[], None]) -> None:
    """Run tasks within a task, which takes once what they all need of the accelerator.

    Each commits on its own, so those that are complete are not rolled back when another one fails.
    """
    with transaction(commit_mode=CommitMode.EAGER):
        make()


def call_with_retries(name: str, function: Callable[[], T]) -> T:
    """Return what another server answers; in a flow a task of this name asks, with retries."""
    if FlowRunContext.get() is None:
        return function()

    def ask() -> T:
        return function()

    answer: T = create_task(ask, name)()
    return answer


class PrefectStageMaker:
    """Makes each stage in a Prefect task of its name."""

    def __init__(
        self,
        runner: StageRunner,
        after_stage: Callable[[], None] = lambda: None,
        takes_accelerator: bool = True,
        begun: Makers | None = None,
    ):
        """`takes_accelerator`: trainings wait for the tag of the machine's one accelerator. A
        worker of a pool has what it needs already. `begun` makes the first stages already.
        """
        self.runner, self.store = runner, runner.store
        self.stages: list[Stage] = []
        self.failed: dict[str, Exception] = {}
        """Label of a stage that the run went on without → why it failed."""
        self.is_stopped = False
        """Whether Ctrl-C ended the run early, so that it kept the best so far."""
        self._after_stage = after_stage
        self._takes_accelerator, self._begun = takes_accelerator, begun

    def make_graph(self, groups: Groups, notes: Sequence[str] = ()) -> Stage:
        """Make each group before the next is asked for; return the last stage. What the graph adds
        to `notes` is logged. After Ctrl-C the graph goes on with what is complete, or raises it;
        of a group that may fail it learns what failed.
        """
        logged = 0
        group = next(groups, None)
        while group is not None:
            for note in notes[logged:]:
                find_run_logger().warning("%s", note)
            logged = len(notes)
            try:
                with end_children_on_error():
                    failed = self.make_side_by_side(group.chains, group.at_once)
                if failed and not group.may_fail:
                    raise_failures(failed, len(group.chains))
            except Terminated:
                raise
            except KeyboardInterrupt as stopped:
                allow_jobs()
                self.is_stopped = True
                group = groups.throw(stopped)
            else:
                self.failed |= {stage.label: error for stage, error in failed}
                causes = {stage.path: error for stage, error in failed}
                with suppress(StopIteration):
                    group = groups.send(causes)
                    continue
                group = None
        return self.stages[-1]

    def make_side_by_side(self, chains: Sequence[Sequence[Stage]], at_once: int) -> Failures:
        """Divide the cores among all chains and make them, each after those that make what it is
        made of, which stand before it. Return the first stage of each that failed; what was to be
        made of it is not tried.
        """
        chains = allocate_threads(chains, at_once)
        stages = [stage for chain in chains for stage in chain]
        self.stages += stages
        failed: Failures = []
        if len(stages) <= 1:
            for stage in stages:
                begun = self._begun if self._begun and self._begun.is_making(stage) else None
                try:
                    self._create_task(stage)(self._make_chain, [stage], begun)
                except Exception as error:
                    failed.append((stage, error))
                self._after_stage()
            return failed
        make = partial(self._submit_chains, chains, at_once, failed)
        undone = [stage for stage in stages if not self.store.manifest(stage)]
        if self._takes_accelerator and any(stage.takes_accelerator for stage in undone):
            name = f"{stages[0].name} side by side"
            make_together.with_options(name=name, task_run_name=name, tags={ACCELERATOR})(make)
        else:
            make()
        return failed

    def _submit_chains(
        self, chains: Sequence[Sequence[Stage]], at_once: int, failed: Failures
    ) -> None:
        makers = Makers(self.store, chains, at_once)
        # each task waits for its own stages, which `at_once` processes make
        pool: ThreadPoolTaskRunner[None] = ThreadPoolTaskRunner(max_workers=len(chains))
        with pool as task_runner, end_children_on_error():
            futures: dict[str, Any] = {}
            for chain in chains:
                arguments = {"make": self._make_chain, "chain": list(chain), "makers": makers}
                sources = [
                    source.fingerprint for stage in chain for source in stage.inputs.values()
                ]
                first = [futures[source] for source in sources if source in futures]
                task = self._create_task(chain[0], is_in_group=True)
                future = task_runner.submit(task, arguments, wait_for=first)
                futures |= dict.fromkeys([stage.fingerprint for stage in chain], future)
            for chain in chains:
                future = futures[chain[0].fingerprint]
                future.wait()
                if future.state.name == "NotReady":
                    failed.append((chain[0], NotTried("what it is made of failed")))
                elif not future.state.is_completed():
                    found = future.result(raise_on_failure=False)
                    if not isinstance(found, Exception):
                        raise found
                    failed.append((chain[0], found))

    def _make_chain(self, chain: Sequence[Stage], makers: Makers | None) -> None:
        self.runner.complete_chain(chain, makers)

    def _create_task(self, stage: Stage, is_in_group: bool = False) -> Any:
        """Return the task of a stage. One that is complete, or in a group that has the accelerator,
        does not queue for it.
        """
        waits = self._takes_accelerator and not is_in_group
        is_waiting = waits and stage.takes_accelerator and self.store.manifest(stage) is None
        label, tags = stage.label.replace("{", "("), [ACCELERATOR] if is_waiting else []
        return create_task(make_stages, stage.name, label, tags)


def make_stages(
    make: Callable[[Sequence[Stage], Makers | None], None],
    chain: Sequence[Stage],
    makers: Makers | None,
) -> None:
    """Make stages one after the other; its arguments are those of a task."""
    make(chain, makers)


def raise_failures(failed: Failures, chains: int) -> None:
    """Raise the one failure, or the first that another did not follow from, with how many."""
    first = next((error for _, error in failed if not isinstance(error, NotTried)), failed[0][1])
    if len(failed) > 1 and isinstance(first, JobFailed | UserError):
        raise type(first)(f"{len(failed)} of {chains} failed; the first: {first}")
    raise first
