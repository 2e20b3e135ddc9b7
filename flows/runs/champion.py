"""The registry's champion of a task in a run: looks it up, and registers the run's model beside it.

Their comparison decides which one is champion, or a person: a run that asks is suspended until that
is answered. It then begins again, finds every stage complete, and reads the answer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

from httpx import HTTPError
from prefect.context import FlowRunContext
from prefect.exceptions import FlowPauseTimeout, NotPausedError, ObjectNotFound
from prefect.flow_runs import resume_flow_run, suspend_flow_run
from prefect.input import RunInput
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
from amazon_electra.model.tracking.mlflow_run import Tracking
from amazon_electra.model.tracking.registry import Registry, RegistryAway, name_model
from amazon_electra.model.tracking.served_model import write_served_model

SETTLE_SECONDS = 120  # for MLflow to take what a run has sent, before its model is registered
APPROVAL_SECONDS = 7 * 24 * 3600  # then the run fails, and its model stays challenger
MIN_TEST_REVIEWS = 100  # below which no rule makes a model champion
CHAMPION = "the champion"


class Approval(RunInput):
    """What a person answers to the evidence."""

    approve: bool = Field(default=False, description="Make this model the champion")
    reason: str = Field(default="", description="Kept with the model")


@dataclass(frozen=True)
class Decision:
    promote: bool
    reason: str


def find_champion(wish: Promotion, store: Store, uri: str, task: str) -> Stage | None:
    """Return the model of a task's champion, where this store has it and this run needs it."""
    if wish.mode == "off":
        return None
    registry = Registry(uri, name_model(task))
    try:
        tags = call_with_retries("champion", lambda: registry.get_by_alias("champion"))
    except (RegistryAway, ValueError) as refused:
        find_run_logger().warning("no champion to compare with: %s", refused)
        return None
    model = ExistingStage("model", tags.get("model", ""), "champion")
    return model if tags.get("model") and store.manifest(model) else None


def register_models(
    wish: Promotion,
    maker: PrefectStageMaker,
    find: Callable[[str], Stage | None],
    last: Stage,
    tracking: Tracking,
) -> tuple[str, bool]:
    """Register the model of each task; return a line for each that says what became of it, and
    whether MLflow took all. `find` returns the champion with which a task's was compared.
    """
    models = [stage for stage in maker.stages if stage.name == "model"]
    if not models or last.name != "report" or wish.mode == "off":
        return "", True
    store, is_complete, lines = maker.store, True, []
    report = read_json(store.fetch(last) / "report.json")
    about = f"**{escape_markdown(report['title'])}**\n\n{escape_markdown(report['answer'])}"
    compared = {
        stage.inputs["model"].fingerprint: store.manifest(stage)
        for stage in maker.stages
        if stage.name == "comparison"
    }
    for model in models:
        folder = store.fetch(model)
        results = read_json(folder / "results.json")
        task, made = results["task"], compared.get(model.fingerprint)
        decision = decide(results, made["result"] if made else None)
        tags = {"model": model.fingerprint, "report": last.fingerprint}
        tags |= {name: results[name] for name in ("task", "kind", "arm")}
        artifact, registry = f"model-{shorten_task(task)}", Registry(tracking.uri, name_model(task))
        with TemporaryDirectory(dir=store.root / "runs") as scratch:  # until MLflow has it
            write_served_model(folder, Path(scratch, "model"))
            tracking.log_folder(Path(scratch, "model"), artifact)
            try:
                asked = registry, artifact, decision, tags, find(task)
                became = promote_model(wish, about, tracking, *asked)
            except (RegistryAway, ValueError) as refused:  # the model stays, whatever MLflow says
                is_complete = False
                became = f"not registered, run the same again: {refused}"
        find_run_logger().info("%s: %s", task, became)
        lines.append(f"{task}: {became}" if len(models) > 1 else became)
    return "\n".join(lines), is_complete


def decide(results: Mapping[str, Any], compared: Mapping[str, Any] | None) -> Decision:
    """Decide whether a model with these results (results.json) becomes the champion, by the 95%
    intervals against the champion (`compared`, flows/stages/model.py), or else simple models.

    Its log-loss must be smaller than that of the champion or the class shares, and not larger than
    that of others; its macro-F1 larger than that of the class shares, and not smaller than the
    champion's. Few test reviews, or a mark of the dump that may have fooled it, leave it to a
    person.
    """
    if compared and (refused := compared.get("refused")):
        return Decision(False, refused)
    promote, reasons = True, []
    giveaway = results.get("questions", {}).get("giveaway")
    if giveaway and not giveaway["is_title"]:  # a title is the reviewer's own words
        promote, reasons = False, [giveaway["says"]]
    if results["n_test"] < MIN_TEST_REVIEWS:
        few = f"{results['n_test']} test reviews, and below {MIN_TEST_REVIEWS} a person decides"
        promote, reasons = False, [*reasons, few]
    for other, found in ({CHAMPION: compared} if compared else results["against"]).items():
        loss, f1 = found["loss"], found["macro_f1"]
        is_better = loss["high"] < 0
        if other == CHAMPION:
            is_good = is_better and f1["high"] >= 0
        elif other == "majority class":
            is_good = is_better and f1["difference"] > 0
        else:
            is_good = loss["low"] < 0
        promote = promote and is_good
        words = "better" if is_better else "not worse"
        reasons.append(
            f"{words if is_good else 'not shown to be better'} than {other} (log-loss smaller by "
            f"{-loss['difference']:.3f}, {-loss['high']:.3f} to {-loss['low']:.3f}; macro-F1 "
            f"{100 * f1['difference']:+.1f} points)"
        )
    return Decision(promote, "; ".join(reasons))


def promote_model(
    wish: Promotion,
    about: str,
    tracking: Tracking,
    registry: Registry,
    artifact: str,
    decision: Decision,
    tags: Mapping[str, str],
    champion: Stage | None,
) -> str:
    """Register the artifact of this run as champion or challenger; return what it became."""
    if not tracking.wait_until_sent(SETTLE_SECONDS):
        raise RegistryAway("MLflow did not answer")
    now = registry.get_by_alias("champion")
    if now.get("model") == tags["model"]:
        return f"version {now['version']} became champion in an earlier run"
    version = registry.add_version(tracking.parent.id, artifact, tags)
    command = registry.format_promotion(version)
    if now and not (champion and champion.fingerprint == now.get("model")):
        why = f"not compared with the champion, version {now['version']}, which another run made"
        decision = Decision(False, f"{why} meanwhile, or of another store; {decision.reason}")
    elif aside := registry.get_tags(version).get("set_aside"):
        why = f"set aside for version {aside}: only `{command}` makes it the champion again"
        decision = Decision(False, f"{why}; {decision.reason}")
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
    """Suspend the run until a person answers; with other evidence, it asks again."""
    registry.set_challenger(version, f"waits for approval; {decision.reason}")
    context = FlowRunContext.get()
    run = context.flow_run if context else None
    if run is None or run.deployment_id is None:
        waits = f"waits for `{registry.format_promotion(version)}`"
        return Decision(False, f"{waits}; {decision.reason}")
    registry.set_tag(version, "waiting", str(run.id))
    evidence = f"{about}\n\nBy the rule: {escape_markdown(decision.reason)}"
    form = Approval.with_initial_data(description=evidence, approve=decision.promote, reason="")
    key = f"approval-{hash_bytes(f'{registry.name} {version} {evidence}'.encode())[:12]}"
    answer: Any = suspend_flow_run(wait_for_input=form, timeout=APPROVAL_SECONDS, key=key)
    registry.set_tag(version, "waiting", "")
    said = "approved" if answer.approve else "not approved"
    reasons = filter(None, (said, answer.reason, decision.reason))
    return Decision(answer.approve, "; ".join(reasons))


def approve_version(registry: Registry, version: str, reason: str) -> bool:
    """Make a version the champion, and set the one before it aside, so that no run brings it back;
    return whether a run waited for that. TransientError if that is out of reach.
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
        why = f"the run {waiting} still waits: Prefect's server does not answer; try again"
        raise TransientError(f"version {version} is the champion, but {why}") from error
    registry.set_tag(version, "waiting", "")
    return bool(waiting)
