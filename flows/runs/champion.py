"""The registry's champion in a run: looks it up, and registers the run's model beside it.

Each task has a registered model of its own. The comparison with its champion decides which one is
the champion, or a person does as well. A run
that asks is suspended: its process ends, and its machine is free for others, until a person answers
in the Prefect UI or by `amazon-electra promote`. Then it begins again, finds every stage complete,
and reads the answer.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
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

from amazon_electra.beam_jobs.model_folder.config import shorten_task
from amazon_electra.flows.configuration.form import Promotion
from amazon_electra.flows.runner.logs import find_run_logger
from amazon_electra.flows.runner.prefect_tasks import PrefectStageMaker, call_with_retries
from amazon_electra.flows.store.stage import ExistingStage, Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.report.document import escape_markdown
from amazon_electra.model.tracking.mlflow_client import hide_credentials
from amazon_electra.model.tracking.mlflow_run import Tracking
from amazon_electra.model.tracking.registry import (
    Registry,
    RegistryAway,
    list_registries,
    name_model,
)
from amazon_electra.model.tracking.served_model import write_served_model

SETTLE_SECONDS = 120
"""For MLflow to take what a run has sent, before its model is registered."""
APPROVAL_SECONDS = 7 * 24 * 3600
"""A run that nobody answered by then fails, and its model stays challenger."""


MIN_TEST_REVIEWS = 100
"""Below which no rule makes a model champion."""


class Approval(RunInput):
    """What a person answers to the evidence."""

    approve: bool = Field(default=False, description="Make this model the champion")
    reason: str = Field(default="", description="Kept with the model")


class PrefectUnavailable(ConnectionError):
    """The server of a waiting run did not take an answer."""


@dataclass(frozen=True)
class Champion:
    """The registry's champion of a task, as a run finds it when it compares its model with it."""

    version: str = ""
    """Empty where there is none."""
    model: Stage | None = None
    """The stage of its folder, where this store has it."""

    @property
    def is_here(self) -> bool:
        """Whether it was made in this store, so that a model can be compared with it."""
        return self.model is not None or not self.version


def read_champion(uri: str, store: Store, task: str) -> Champion:
    """Return the champion of a task; raise RegistryAway where MLflow does not answer."""
    tags = Registry(uri, name_model(task)).get_by_alias("champion")
    model = ExistingStage("model", 0, {}, known=tags.get("model", ""), title="champion")
    is_here = bool(tags.get("model")) and store.manifest(model) is not None
    return Champion(tags.get("version", ""), model if is_here else None)


def check_registry(wish: Promotion, uri: str) -> None:
    """Raise RegistryAway where the run is to register its models and MLflow does not answer."""
    if wish.mode != "off":
        call_with_retries("champion", partial(list_registries, uri))


def find_champion(wish: Promotion, store: Store, uri: str, task: str) -> Champion:
    """Return the registry's champion of a task where this run needs it, else an empty one."""
    if wish.mode == "off":
        return Champion()
    champion = call_with_retries("champion", partial(read_champion, uri, store, task))
    if not champion.is_here:
        find_run_logger().warning(
            "the champion of %s, version %s, is of another store: nothing is compared with it, "
            "and it stays champion",
            task,
            champion.version,
        )
    return champion


def register_models(
    wish: Promotion,
    maker: PrefectStageMaker,
    find: Callable[[str], Champion],
    last: Stage,
    tracking: Tracking,
) -> str:
    """Register the model of each task as its champion or challenger; return a line for each that
    says what became of it. `find` returns the champion of a task that the run was compared with.
    """
    made = [stage for stage in maker.stages if stage.name == "model"]
    if not made or last.name != "report":
        return ""
    if wish.mode == "off":
        return "not registered: promotion.mode=off"
    report = json.loads((maker.store.fetch(last) / "report.json").read_text(encoding="utf-8"))
    lines = []
    for model in made:
        became = register_model(wish, maker, model, find, last, report, tracking)
        lines.append(f"{model.config.task}: {became}" if len(made) > 1 else became)
    return "\n".join(lines)


def register_model(
    wish: Promotion,
    maker: PrefectStageMaker,
    model: Stage,
    find: Callable[[str], Champion],
    last: Stage,
    report: Mapping[str, Any],
    tracking: Tracking,
) -> str:
    """Register the model of a task; return what became of it."""
    store, folder = maker.store, maker.store.fetch(model)
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    champion = find(results["task"])
    tags = {
        "task": results["task"],
        "model": model.fingerprint,
        "kind": results["kind"],
        "arm": results["arm"],
        "report": last.fingerprint,
    }
    if encoder := find_encoder(maker.stages, results):
        tags["encoder"] = encoder.fingerprint
    compared = [
        store.manifest(stage)
        for stage in maker.stages
        if stage.name == "comparison" and stage.inputs["model"].fingerprint == model.fingerprint
    ]
    if compared and compared[0]:
        decision = decide_promotion(compared[0]["result"])
    else:
        decision = decide_first(results)
    if results["n_test"] < MIN_TEST_REVIEWS:
        few = f"{results['n_test']} test reviews, and below {MIN_TEST_REVIEWS} a person decides"
        decision = Decision(False, f"{few}; {decision.reason}")
    decision = refuse_giveaway(decision, results)
    artifact = f"model-{shorten_task(results['task'])}"
    registry = Registry(tracking.uri, name_model(results["task"]))
    asked = registry, artifact, decision, tags, champion
    with TemporaryDirectory(dir=store.root / "runs") as scratch:  # until MLflow has it
        write_served_model(folder, Path(scratch, "model"))
        tracking.log_folder(Path(scratch, "model"), artifact)
        return consider_promotion(wish, report, tracking, *asked)


def find_encoder(stages: Sequence[Stage], results: Mapping[str, Any]) -> Stage | None:
    """Return the encoder of the exported cell; None if it has none."""
    wanted = {"arm": results["arm"], "task": results["task"], "seed": str(results["seed"])}
    for stage in stages:
        if stage.name == "finetuning" and dict(stage.labels) == wanted:
            return stage.inputs.get("encoder")
    return None


def decide_first(results: Mapping[str, Any]) -> "Decision":
    """Decide on the first model of a registry, which has no champion to beat, by results.json.

    Its log-loss must be smaller than that of the class shares by the 95% interval, and its macro-F1
    larger; no other simple model may have a smaller log-loss by that interval; and it must give
    more than one answer. Accuracy does not decide: of 98% positives no model gains much.
    """
    reasons, promote = [], True
    if sum(one["answered"] > 0 for one in results["classes"]) == 1:
        reasons, promote = ["it gives one answer to every test review"], False
    for other, found in results["against"].items():
        is_simplest = other == "majority class"
        gain, low, high = (-found["loss"][part] for part in ("difference", "high", "low"))
        macro_f1 = found["macro_f1"]["difference"]
        is_good = (low > 0 and macro_f1 > 0) if is_simplest else high > 0
        words = ("better" if is_simplest else "not worse") if is_good else "not shown to be better"
        reasons.append(
            f"{words} than {other} (log-loss smaller by {gain:.3f}, {low:.3f} to {high:.3f}; "
            f"macro-F1 {100 * macro_f1:+.1f} points)"
        )
        promote = promote and is_good
    return Decision(promote, "; ".join(reasons))


@dataclass(frozen=True)
class Decision:
    promote: bool
    reason: str


def refuse_giveaway(decision: Decision, results: Mapping[str, Any]) -> Decision:
    """Return the decision, but no promotion of a model that a mark of the dump may have fooled: a
    person may still make it the champion.
    """
    found = results.get("questions", {}).get("giveaway")
    return Decision(False, f"{found['says']} {decision.reason}") if found else decision


def decide_promotion(compared: Mapping[str, Any]) -> Decision:
    """Decide by the comparison of a new model with the champion on reviews that neither was
    trained on (flows/stages/comparison.py).

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


def consider_promotion(
    wish: Promotion,
    report: Mapping[str, Any],
    tracking: Tracking,
    registry: Registry,
    artifact: str,
    decision: Decision,
    tags: Mapping[str, str],
    champion: Champion,
) -> str:
    """Register the artifact of this run, and make it champion or challenger; return what it became.

    `decision` is that of the study, `champion` the one that was there when its cells were made.
    """
    try:
        if not tracking.wait_until_sent(SETTLE_SECONDS):
            raise RegistryAway("MLflow did not answer")
        now = registry.get_by_alias("champion")
        if now.get("model") == tags["model"]:
            return f"version {now['version']} is champion already"
        version = registry.add_version(tracking.parent.id, artifact, tags)
        if against := find_objection(registry, version, champion):
            decision = Decision(False, f"{against}; {decision.reason}")
        if wish.mode == "ask":
            decision = request_approval(decision, report, registry, version)
        if decision.promote:
            registry.promote(version, decision.reason)
        else:
            registry.set_challenger(version, decision.reason)
        is_champion = registry.get_by_alias("champion").get("version") == version
    except RegistryAway as away:
        find_run_logger().warning("the model is not registered; run the same again later: %s", away)
        return f"not registered, run the same again later: {away}"
    role = "champion" if is_champion else "challenger"
    find_run_logger().info("version %s is %s: %s", version, role, decision.reason)
    how = "" if is_champion else f"; `{registry.format_promotion(version)}` makes it the champion"
    return f"version {version} is {role}: {decision.reason}{how}"


def find_objection(registry: Registry, version: str, champion: Champion) -> str:
    """Return why a model must not replace the champion of this moment, or an empty text.

    This holds however well the model did in the study.
    """
    now = registry.get_by_alias("champion").get("version", "")
    if now != champion.version and now:
        return f"version {now} became champion meanwhile: run the same again to compare with it"
    if champion.version and not champion.is_here:
        return (
            f"the champion, version {champion.version}, is of another store: not compared with it"
        )
    if aside := registry.get_tags(version).get("set_aside"):
        command = registry.format_promotion(version)
        return f"set aside for version {aside}: only `{command}` makes it the champion again"
    return ""


def request_approval(
    decision: Decision, report: Mapping[str, Any], registry: Registry, version: str
) -> Decision:
    """Suspend the run until a person answers, who sees the evidence above the form.

    The answer belongs to the evidence: a run that begins again with other evidence, because the
    champion is another by now, asks again.
    """
    registry.set_challenger(version, f"waits for approval; {decision.reason}")
    context = FlowRunContext.get()
    run = context.flow_run if context else None
    if run is None or run.deployment_id is None:
        return Decision(
            False, f"waits for `{registry.format_promotion(version)}`; {decision.reason}"
        )
    registry.set_tag(version, "waiting", str(run.id))
    title, answered, reason = map(
        escape_markdown, (report["title"], report["answer"], decision.reason)
    )
    evidence = f"**{title}**\n\n{answered}\n\nBy the rule: {reason}"
    form = Approval.with_initial_data(description=evidence, approve=decision.promote, reason="")
    key = f"approval-{sha256(f'{registry.name} {version} {evidence}'.encode()).hexdigest()[:12]}"
    answer: Any = suspend_flow_run(wait_for_input=form, timeout=APPROVAL_SECONDS, key=key)
    registry.set_tag(version, "waiting", "")
    words = "approved" if answer.approve else "not approved"
    said = f": {answer.reason}" if answer.reason else ""
    return Decision(answer.approve, f"{words}{said}; {decision.reason}")


def approve_version(registry: Registry, version: str, reason: str) -> bool:
    """Make a version the champion, and set the one before it aside, so that no run brings it back;
    return whether a run waited for that, which then goes on.

    PrefectUnavailable if it is out of reach; its note stays: the same command again reaches it.
    """
    waiting = registry.get_tags(version).get("waiting", "")
    before = registry.get_by_alias("champion").get("version", version)
    registry.promote(version, reason)
    if before != version:
        registry.set_tag(before, "set_aside", version)
    if not waiting:
        return False
    goes_on = True
    try:
        resume_flow_run(UUID(waiting), run_input={"approve": True, "reason": reason})
    except (NotPausedError, ObjectNotFound, FlowPauseTimeout):
        goes_on = False
    except (HTTPError, RuntimeError) as error:
        cause = hide_credentials(str(error) or type(error).__name__).splitlines()[0]
        server = hide_credentials(PREFECT_API_URL.value() or "no address")
        raise PrefectUnavailable(
            f"version {version} is the champion, but the run {waiting} still waits for it: the "
            f"Prefect server at {server} did not take the answer ({cause}); once it is up "
            "(`amazon-electra up`), the same command again continues the run"
        ) from error
    registry.set_tag(version, "waiting", "")
    return goes_on
