"""How Prefect goes through a graph: a task per stage, what is retried, what is told at the end."""

import json
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext
from prefect.exceptions import Pause
from prefect.runtime import flow_run
from prefect.states import Completed
from prefect.task_runners import ThreadPoolTaskRunner

from beam_jobs.command import MayPass
from beam_jobs.storage import is_remote
from flows import presentation, promotion, servers
from flows.cancellation import obeyed
from flows.completion import Completion, Maker, flat
from flows.deployments import ACCELERATOR
from flows.parameters import Addition, Parameters
from flows.processes import JobFailed, none_left
from flows.stages import dump, pretraining
from flows.store import Manifest, Stage, Store
from model.tracking import Tracking

T = TypeVar("T")

RETRY_DELAYS = [10.0, 60.0, 300.0]
"""Seconds: a network hiccup, a restarted service, a pre-empted machine that comes back."""

spectators: list[presentation.Audience] = []
"""Who watches besides Prefect: the terminal of `amazon-electra run`."""


def may_pass(task: Any, run: Any, state: Any) -> bool:
    """Only what another attempt can mend is tried again: a lost connection, a killed process; no bug, no bad input."""
    try:
        state.result()
    except (JobFailed, MayPass, ConnectionError, TimeoutError) as failure:
        passing = failure.transient if isinstance(failure, JobFailed) else True
        if passing and run.run_count <= len(RETRY_DELAYS):
            presentation.run_logger().warning("tried again after attempt %d: %s", run.run_count, failure)
        return passing
    except BaseException:
        return False
    return False


@task(
    name="stage",
    retry_jitter_factor=0.5,
    retry_condition_fn=may_pass,
    cache_policy=NO_CACHE,
    persist_result=False,
)
def completed(completion: Completion, chain: Sequence[Stage]) -> Manifest:
    """The last manifest of stages made one after the other."""
    return completion.complete_all(chain)


@task(cache_policy=NO_CACHE, persist_result=False)
def together(make: Callable[[], None]) -> None:
    """A task around tasks: what they all need of the accelerator is taken once."""
    make()


@task(retry_jitter_factor=0.5, retry_condition_fn=may_pass, cache_policy=NO_CACHE, persist_result=False)
def answered(ask: Callable[[], T]) -> T:
    return ask()


def patient(task: Any) -> Any:
    """The same task, tried again where `may_pass` says that this may help."""
    return task.with_options(retries=len(RETRY_DELAYS), retry_delay_seconds=RETRY_DELAYS)


def asked(name: str, ask: Callable[[], T]) -> T:
    """What another server says; in a flow by a task of this name, so that one that is away is asked again."""
    if FlowRunContext.get() is None:
        return ask()
    given: T = patient(answered).with_options(name=name, task_run_name=name)(ask)
    return given


def listed(parameters: Parameters | Addition, store: Store) -> Stage:
    """The dump, its files asked for where they lie."""
    ask = partial(dump.stage, parameters, store)
    return asked("listing", ask) if any(is_remote(path) for path in parameters.dump.paths) else ask()


class PrefectMaker:
    """Makes each stage in a Prefect task of its name."""

    def __init__(self, completion: Completion, find_champion: Callable[[], promotion.Champion]):
        self.completion, self.store, self._find_champion = completion, completion.store, find_champion
        self.stages: list[Stage] = []
        self._linked = False

    @cached_property
    def found(self) -> promotion.Champion:
        """Looked up when it is needed: hours of training after the beginning it may be another one."""
        return self._find_champion()

    @property
    def champion(self) -> Stage | None:
        return self.found.encoder

    def dump(self, parameters: Parameters) -> Stage:
        return listed(parameters, self.store)

    def __call__(self, stage: Stage) -> Stage:
        self.stages.append(stage)
        self._named(stage)(self.completion, [stage])
        self.link()
        return stage

    def link(self) -> None:
        """To the run in MLflow, as soon as there is one: nothing waits for it."""
        address = self.completion.tracking.address()
        if address and not self._linked:
            presentation.publish_link(address, "mlflow-run", "The run in MLflow: curves, system metrics, artifacts")
            self._linked = True

    def side_by_side(self, chains: Sequence[Sequence[Stage]], at_once: int) -> None:
        """All of them, so many at a time; the first failure is raised when the others are done."""
        stages = [stage for chain in chains for stage in chain]
        self.stages += stages
        make = partial(self._side_by_side, chains, at_once)
        if all(self.store.manifest(stage) for stage in stages):
            make()
        else:
            name = f"{stages[0].name} side by side"
            together.with_options(name=name, task_run_name=name, tags={ACCELERATOR})(make)

    def _side_by_side(self, chains: Sequence[Sequence[Stage]], at_once: int) -> None:
        pool: ThreadPoolTaskRunner[Manifest] = ThreadPoolTaskRunner(max_workers=at_once)
        with pool as runner, none_left():
            futures = []
            for chain in chains:
                arguments = {"completion": self.completion, "chain": list(chain)}
                futures.append(runner.submit(self._named(chain[0]), arguments))
            for future in futures:
                future.wait()
            for future in futures:
                future.result()

    def _named(self, stage: Stage) -> Any:
        """The task of a stage; one that is complete already does not queue for the accelerator."""
        return patient(completed).with_options(
            name=stage.name,
            task_run_name=stage.label.replace("{", "("),
            tags=set(stage.tags) if self.store.manifest(stage) is None else set(),
        )


def run_name() -> str:
    """Of a flow with a preset."""
    return titled(flow_run.parameters.get("preset", "tiny"))


def titled(what: str) -> str:
    """Dump, what is made of it, and date: what one looks for in a list of runs."""
    name = dump.name(chosen("dump", "paths", ["dump"]))
    return f"{name} · {what} · {flow_run.scheduled_start_time:%Y-%m-%d %H:%M}"


def chosen(section: str, field: str, default: Any) -> Any:
    """What this flow run was given; the name of a run is asked for before its parameters are validated."""
    given = flow_run.parameters.get(section)
    return given.get(field, default) if isinstance(given, dict) else getattr(given, field, default)


def going_through(graph: Callable[[Parameters, Maker], Stage], parameters: Parameters) -> dict[str, Any]:
    """Makes every stage of the graph, the last of which is the report; the paths of what a person looks at next."""
    pretraining.demand_device(parameters)
    store = Store(parameters.store)
    tags = {"prefect.flow_run_id": str(flow_run.id or ""), "amazon_electra.store": str(store.root)}
    if page := flow_run.ui_url:
        tags |= {"prefect.flow_run": page, "mlflow.note.content": f"[The run in Prefect]({page})"}
    tracking = Tracking(servers.mlflow_uri(store.root), f"file://{store.root}/mlflow/artifacts")
    (store.root / "mlflow").mkdir(parents=True, exist_ok=True)
    remembered = store.root / "runs" / str(flow_run.id)
    remembered.mkdir(parents=True, exist_ok=True)
    audiences = [presentation.PrefectRun(), *spectators]
    find_champion = partial(champion_of, parameters, store, tracking.uri)
    find_champion()  # a registry that is away is told before anything is made
    maker = PrefectMaker(Completion(store, audiences, tracking, tags), find_champion)
    values, dataset = flat(parameters.model_dump()), dataset_of(parameters, store)
    tracking.start(flow_run.name or "run", values, tags, dataset, remembered)
    status = "FAILED"
    try:
        with none_left(), obeyed(str(flow_run.id)):
            last = graph(parameters, maker)
            summary = present(store, maker.stages, last, tracking)
            promote(parameters, store, maker, last, tracking)
            status = "FINISHED"
    except Pause:
        status = "SCHEDULED"
        be_silent()
        raise
    except BaseException as stopped:
        status = "FAILED" if isinstance(stopped, Exception) else "KILLED"
        raise
    finally:
        tracking.finish(status)
    return summary


def be_silent() -> None:
    """Ends the signs of life of a run that was suspended while its process still closes what it had open.

    Prefect's engine sends them until the run that it holds is over, and one after the suspension would be taken for
    that of a run that was lost later (`automations.lost_runs`). The state is this process's own copy.
    """
    context = FlowRunContext.get()
    if context and context.flow_run:
        context.flow_run.state = Completed()


def champion_of(parameters: Parameters, store: Store, uri: str) -> promotion.Champion:
    """The registry's champion, where this run asks for it."""
    if parameters.promotion.mode == "off" and "champion" not in parameters.finetuning.arms:
        return promotion.Champion()
    champion = asked("champion", partial(promotion.champion_in, uri, store))
    if champion.version and champion.encoder is None:
        presentation.run_logger().warning(
            "the champion, version %s, is of another store: nothing is compared with it, and it stays champion",
            champion.version,
        )
    return champion


def promote(parameters: Parameters, store: Store, maker: PrefectMaker, last: Stage, tracking: Tracking) -> None:
    """Registers the encoder, with the fine-tuned model that `score` uses, as champion or challenger."""
    if parameters.promotion.mode == "off" or last.name != "report":
        return
    *_, encoder = [stage for stage in maker.stages if stage.name == "pretraining"]
    scorer = next(s for s in maker.stages if s.name == "finetuning" and s.parameters["arm"] == "pre-trained")
    tracking.log_folder(store.folder(last) / "model", "model")
    report = json.loads((store.folder(last) / "report.json").read_text())
    itself = maker.champion is not None and maker.champion.fingerprint == encoder.fingerprint
    arms = {row["arm"] for row in report["results"]}
    rival = "champion" if maker.champion and not itself else "base" if "base" in arms else "random"
    tags = {"encoder": encoder.fingerprint, "report": last.fingerprint, "scorer": scorer.fingerprint}
    promotion.consider(parameters.promotion, report, tracking, rival, tags, maker.found)


def dataset_of(parameters: Parameters, store: Store) -> dict[str, str]:
    """The dump as MLflow names a dataset."""
    reviews = listed(parameters, store)
    return {"name": reviews.result["name"], "digest": reviews.fingerprint, "source": " ".join(reviews.result["paths"])}


def present(store: Store, stages: Sequence[Stage], last: Stage, tracking: Tracking) -> dict[str, Any]:
    """The report and the table of stages, in Prefect and MLflow."""
    folder = store.folder(last)
    made = [(manifest, str(store.folder(stage))) for stage in stages if (manifest := store.manifest(stage))]
    manifests = [manifest for manifest, _ in made]
    presentation.publish_stages([stage_row(*one) for one in made])
    report = folder / "report.md"
    if report.exists():
        presentation.publish_report(report.read_text())
    tracking.tag(
        {f"amazon_electra.{m['stage']}": m["fingerprint"] for m in manifests if not m["title"].endswith("test")}
    )
    if warnings := [warning for m in manifests for warning in m["result"].get("warnings", [])]:
        presentation.publish_warnings(warnings)
        tracking.tag({"amazon_electra.warnings": " ".join(warnings)})
    if bases := [m["inputs"]["base"]["fingerprint"] for m in manifests if "base" in m["inputs"]]:
        tracking.tag({"amazon_electra.base": bases[-1]})
    tracking.log_metrics(
        {
            f"{m['title']}.{n}".replace("·", "-"): v
            for m in manifests
            for n, v in presentation.numbers(m["result"]).items()
        }
    )
    if not tracking.has_taken(folder):
        for name in ("report.md", "report.html", "report.json", "model"):
            if (folder / name).exists():
                tracking.log_folder(folder / name, "model" if name == "model" else "")
                link_to(name, folder, tracking)
        tracking.remember_taken(folder)
    return {"report": str(folder / "report.html"), "model": str(folder / "model"), "folder": str(folder)}


LINKED = {"report.html": "The report as a page", "model": "The model"}
"""What a person looks for among a run's artifacts in MLflow."""


def link_to(name: str, folder: Path, tracking: Tracking) -> None:
    """From Prefect to what MLflow keeps; the description says where it lies on the disk."""
    if name in LINKED and (page := tracking.address()):
        about = f"{LINKED[name]}, in MLflow; also {folder / name}"
        presentation.publish_link(f"{page}/artifacts/{name}", f"{name}-in-mlflow", about)


def stage_row(manifest: Manifest, folder: str) -> dict[str, Any]:
    return {
        "stage": manifest["title"],
        "fingerprint": manifest["fingerprint"],
        "counts": presentation.one_line(manifest),
        "seconds": manifest.get("seconds", 0.0),
        "cpu seconds": manifest.get("cpu_seconds", 0.0),
        "folder": folder,
    }
