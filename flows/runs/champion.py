"""The registry's champion of a task in a run: looks it up, and registers the run's model beside it.

The comparison with the champion decides which one is it, or a person does: a run that asks is
suspended until a person answers in the Prefect UI or by `amazon-electra promote VERSION`. It then
begins again, finds every stage complete, and reads the answer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

from httpx import HTTPError
from prefect.context import FlowRunContext
from prefect.exceptions import FlowPauseTimeout, NotPausedError, ObjectNotFound
from prefect.flow_runs import resume_flow_run, suspend_flow_run
from prefect.input import RunInput
from prefect.settings import PREFECT_API_URL
from pydantic import Field

from amazon_electra.beam_jobs.core.errors import TransientError
from amazon_electra.beam_jobs.core.files import hash_bytes
from amazon_electra.beam_jobs.core.nesting import read_json
from amazon_electra.beam_jobs.model_folder.config import shorten_task
from amazon_electra.flows.configuration.form import Promotion
from amazon_electra.flows.runner.logs import find_run_logger
from amazon_electra.flows.runner.prefect_tasks import PrefectStageMaker, call_with_retries
from amazon_electra.flows.store.stage import ExistingStage, Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.report.document import escape_markdown
from amazon_electra.model.tracking.mlflow_client import hide_credentials
from amazon_electra.model.tracking.mlflow_run import Tracking
from amazon_electra.model.tracking.registry import Registry, RegistryAway, name_model
from amazon_electra.model.tracking.served_model import write_served_model

SETTLE_SECONDS = 120  # for MLflow to take what a run has sent, before its model is registered
APPROVAL_SECONDS = 7 * 24 * 3600  # then the run fails, and its model stays challenger
MIN_TEST_REVIEWS = 100  # below which no rule makes a model champion


class Approval(RunInput):
    """What a person answers to the evidence."""

    approve: bool = Field(default=False, description="Make this model the champion")
    reason: str = Field(default="", description="Kept with the model")


@dataclass(frozen=True)
class Champion:
    """The registry's champion of a task, as a run finds it when it compares its model with it."""

    version: str = ""
    """Empty where there is none."""
    model: Stage | None = None
    """The stage of its folder, where this store has it, so that a model can be compared with it."""

    @property
    def is_elsewhere(self) -> bool:
        return bool(self.version) and self.model is None


@dataclass(frozen=True)
class Decision:
    promote: bool
    reason: str


def read_champion(uri: str, store: Store, task: str) -> Champion:
    """Return the champion of a task; raise RegistryAway where MLflow does not answer."""
    tags = Registry(uri, name_model(task)).get_by_alias("champion")
    model = ExistingStage("model", tags.get("model", ""), "champion")
    is_here = bool(tags.get("model")) and store.manifest(model) is not None
    return Champion(tags.get("version", ""), model if is_here else None)


def find_champion(wish: Promotion, store: Store, uri: str, task: str) -> Champion:
    """Return the registry's champion of a task where this run needs it, else an empty one."""
    if wish.mode == "off":
        return Champion()
    try:
        champion = call_with_retries("champion", partial(read_champion, uri, store, task))
    except (RegistryAway, ValueError) as refused:
        find_run_logger().warning("no champion to compare with: %s", refused)
        return Champion()
    if champion.is_elsewhere:
        about = "the champion of %s, version %s, is of another store: it stays, and is not compared"
        find_run_logger().warning(about, task, champion.version)
    return champion


def register_models(
    wish: Promotion,
    maker: PrefectStageMaker,
    find: Callable[[str], Champion],
    last: Stage,
    tracking: Tracking,
) -> tuple[str, bool]:
    """Register the model of each task as its champion or challenger; return a line for each that
    says what became of it, and whether MLflow took all. `find` returns the champion of a task that
    the run was compared with.
    """
    models = [stage for stage in maker.stages if stage.name == "model"]
    if not models or last.name != "report":
        return "", True
    if wish.mode == "off":
        return "not registered: promotion.mode=off", True
    store, is_complete, lines = maker.store, True, []
    report = read_json(store.fetch(last) / "report.json")
    about = f"**{escape_markdown(report['title'])}**\n\n{escape_markdown(report['answer'])}"
    for model in models:
        folder = store.fetch(model)
        results = read_json(folder / "results.json")
        task, compared = results["task"], None
        tags = {"model": model.fingerprint, "report": last.fingerprint}
        tags |= {name: results[name] for name in ("task", "kind", "arm")}
        cell = {"arm": results["arm"], "task": task, "seed": str(results["seed"])}
        for stage in maker.stages:
            if stage.name == "comparison" and stage.inputs["model"].fingerprint == tags["model"]:
                compared = store.manifest(stage)
            is_exported = stage.name == "finetuning" and dict(stage.labels) == cell
            if is_exported and "encoder" in stage.inputs:
                tags["encoder"] = stage.inputs["encoder"].fingerprint
        decision = decide(results, compared["result"] if compared else None)
        artifact, registry = f"model-{shorten_task(task)}", Registry(tracking.uri, name_model(task))
        with TemporaryDirectory(dir=store.root / "runs") as scratch:  # until MLflow has it
            write_served_model(folder, Path(scratch, "model"))
            tracking.log_folder(Path(scratch, "model"), artifact)
            asked = registry, artifact, decision, tags, find(task)
            try:
                became = promote_model(wish, about, tracking, *asked)
            except (RegistryAway, ValueError) as refused:  # the model stays, whatever MLflow says
                is_complete = False
                became = f"not registered, run the same again: {refused}"
        find_run_logger().info("%s: %s", task, became)
        lines.append(f"{task}: {became}" if len(models) > 1 else became)
    return "\n".join(lines), is_complete


def decide(results: Mapping[str, Any], compared: Mapping[str, Any] | None) -> Decision:
    """Decide whether a model with these results (results.json) becomes the champion, by its
    comparison with the champion where there is one. A model of few test reviews, or one that a mark
    of the dump may have fooled, is left to a person.
    """
    decision = decide_promotion(compared) if compared else decide_first(results)
    if results["n_test"] < MIN_TEST_REVIEWS:
        few = f"{results['n_test']} test reviews, and below {MIN_TEST_REVIEWS} a person decides"
        decision = Decision(False, f"{few}; {decision.reason}")
    giveaway = results.get("questions", {}).get("giveaway")
    if giveaway and not giveaway["is_title"]:  # a title is the reviewer's own words
        decision = Decision(False, f"{giveaway['says']} {decision.reason}")
    return decision


def decide_first(results: Mapping[str, Any]) -> Decision:
    """Decide on the first model of a registry, which has no champion to beat.

    Its log-loss must be smaller than that of the class shares by the 95% interval, and its macro-F1
    larger; no other simple model may have a smaller log-loss by that interval; and it must give
    more than one answer. Accuracy does not decide: of 98% positives no model gains much.
    """
    reasons, promote = [], True
    if sum(one["answered"] > 0 for one in results["classes"]) == 1:
        reasons, promote = ["it gives one answer to every test review"], False
    for other, found in results["against"].items():
        gain, low, high = (-found["loss"][part] for part in ("difference", "high", "low"))
        macro_f1 = found["macro_f1"]["difference"]
        if other == "majority class":
            is_good, words = low > 0 and macro_f1 > 0, "better"
        else:
            is_good, words = high > 0, "not worse"
        promote = promote and is_good
        reasons.append(
            f"{words if is_good else 'not shown to be better'} than {other} (log-loss smaller by "
            f"{gain:.3f}, {low:.3f} to {high:.3f}; macro-F1 {100 * macro_f1:+.1f} points)"
        )
    return Decision(promote, "; ".join(reasons))


def decide_promotion(compared: Mapping[str, Any]) -> Decision:
    """Decide by the comparison with the champion on reviews that neither was trained on
    (flows/stages/model.py).

    The new log-loss must be smaller by the 95% interval of the paired difference, and the new
    macro-F1 not smaller by its interval.
    """
    if refused := compared.get("refused"):
        return Decision(False, refused)
    loss, f1 = compared["loss"], compared["macro_f1"]
    is_better = loss["high"] < 0 and f1["high"] >= 0
    return Decision(
        is_better,
        f"{'better' if is_better else 'not shown to be better'} than the champion on "
        f"{compared['n']:,} test reviews (log-loss smaller by {-loss['difference']:+.3f}, "
        f"{-loss['high']:+.3f} to {-loss['low']:+.3f}; macro-F1 {100 * f1['difference']:+.1f} "
        f"points, {100 * f1['low']:+.1f} to {100 * f1['high']:+.1f})",
    )


def promote_model(
    wish: Promotion,
    about: str,
    tracking: Tracking,
    registry: Registry,
    artifact: str,
    decision: Decision,
    tags: Mapping[str, str],
    champion: Champion,
) -> str:
    """Register the artifact of this run, and make it champion or challenger; return what it became.
    RegistryAway where MLflow does not answer.

    `decision` is that of the run, `champion` the one that was there when its cells were made,
    `about` the report in Markdown, for a person who is asked.
    """
    if not tracking.wait_until_sent(SETTLE_SECONDS):
        raise RegistryAway("MLflow did not answer")
    now = registry.get_by_alias("champion")
    if now.get("model") == tags["model"]:
        return f"version {now['version']} became champion in an earlier run"
    version = registry.add_version(tracking.parent.id, artifact, tags)
    current, command = now.get("version", ""), registry.format_promotion(version)
    objection = ""  # which holds however well the model did
    if current and current != champion.version:
        objection = f"version {current} became champion meanwhile: run the same again to compare"
    elif champion.is_elsewhere:
        objection = f"the champion, version {current}, is of another store: not compared with it"
    elif aside := registry.get_tags(version).get("set_aside"):
        objection = f"set aside for version {aside}: only `{command}` makes it the champion again"
    if objection:
        decision = Decision(False, f"{objection}; {decision.reason}")
    if wish.mode == "ask":
        decision = request_approval(decision, about, registry, version)
    if decision.promote:
        registry.promote(version, decision.reason)
    else:
        registry.set_challenger(version, decision.reason)
    if registry.get_by_alias("champion").get("version") == version:
        return f"version {version} became champion: {decision.reason}"
    how = f"`{command}` makes it the champion"
    return f"version {version} became challenger: {decision.reason}; {how}"


def request_approval(decision: Decision, about: str, registry: Registry, version: str) -> Decision:
    """Suspend the run until a person answers, who sees the evidence above the form. A run that
    begins again with other evidence, as the champion is another by now, asks again.
    """
    registry.set_challenger(version, f"waits for approval; {decision.reason}")
    context = FlowRunContext.get()
    run = context.flow_run if context else None
    if run is None or run.deployment_id is None:
        return Decision(
            False, f"waits for `{registry.format_promotion(version)}`; {decision.reason}"
        )
    registry.set_tag(version, "waiting", str(run.id))
    evidence = f"{about}\n\nBy the rule: {escape_markdown(decision.reason)}"
    form = Approval.with_initial_data(description=evidence, approve=decision.promote, reason="")
    key = f"approval-{hash_bytes(f'{registry.name} {version} {evidence}'.encode())[:12]}"
    answer: Any = suspend_flow_run(wait_for_input=form, timeout=APPROVAL_SECONDS, key=key)
    registry.set_tag(version, "waiting", "")
    words = "approved" if answer.approve else "not approved"
    said = f": {answer.reason}" if answer.reason else ""
    return Decision(answer.approve, f"{words}{said}; {decision.reason}")


def approve_version(registry: Registry, version: str, reason: str) -> bool:
    """Make a version the champion, and set the one before it aside, so that no run brings it back;
    return whether a run waited for that, which then goes on.

    TransientError if it is out of reach; its note stays: the same command again reaches it.
    """
    waiting = registry.get_tags(version).get("waiting", "")
    before = registry.get_by_alias("champion").get("version", version)
    registry.promote(version, reason)
    if before != version:
        registry.set_tag(before, "set_aside", version)
    if not waiting:
        return False
    try:
        resume_flow_run(UUID(waiting), run_input={"approve": True, "reason": reason})
    except (NotPausedError, ObjectNotFound, FlowPauseTimeout):
        waiting = ""
    except (HTTPError, RuntimeError) as error:
        server = hide_credentials(PREFECT_API_URL.value() or "no address")
        raise TransientError(
            f"version {version} is the champion, but the run {waiting} still waits: the Prefect "
            f"server at {server} does not answer; the same command again continues the run"
        ) from error
    registry.set_tag(version, "waiting", "")
    return bool(waiting)
