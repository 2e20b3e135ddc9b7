"""The registry's champion in a run: looks it up, and registers the run's model beside it.

The study on the named tasks decides which model is the champion, or a person does as well. A run
that asks is suspended: its process ends, and its machine is free for others, until a person answers
in the Prefect UI or by `amazon-electra promote`. Then it begins again, finds every stage complete,
and reads the answer.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import sha256
from typing import Any
from uuid import UUID

from httpx import HTTPError
from prefect.context import FlowRunContext
from prefect.exceptions import FlowPauseTimeout, NotPausedError, ObjectNotFound
from prefect.flow_runs import resume_flow_run, suspend_flow_run
from prefect.input import RunInput
from prefect.settings import PREFECT_API_URL
from pydantic import Field

from flows.configuration.form import Parameters, Promotion
from flows.runner.logs import find_run_logger
from flows.runner.prefect_tasks import PrefectStageMaker, call_with_retries
from flows.stages.arms import ADAPTED, AS_PUBLISHED, find_written
from flows.store.store import ExistingStage, Stage, Store
from model.report.document import escape_markdown
from model.tracking.mlflow_client import hide_credentials
from model.tracking.mlflow_run import Tracking
from model.tracking.registry import Registry, RegistryAway

SETTLE_SECONDS = 120
"""For MLflow to take what a run has sent, before its model is registered."""
APPROVAL_SECONDS = 7 * 24 * 3600
"""A run that nobody answered by then fails, and its model stays challenger."""


class Approval(RunInput):
    """What a person answers to the evidence."""

    approve: bool = Field(default=False, description="Make this model the champion")
    reason: str = Field(default="", description="Kept with the model")


class PrefectUnavailable(ConnectionError):
    """The server of a waiting run did not take an answer."""


@dataclass(frozen=True)
class Champion:
    """The registry's champion, as a run finds it when it makes its cells."""

    version: str = ""
    """Empty where there is none."""
    encoder: Stage | None = None
    """Where this store has it."""


def read_champion(uri: str, store: Store) -> Champion:
    """Return the registry's champion; raise RegistryAway where MLflow does not answer."""
    tags = Registry(uri).get_by_alias("champion")
    fingerprint = tags.get("encoder", "")
    encoder = ExistingStage("pretraining", 0, {}, known=fingerprint, title="champion")
    here = fingerprint and store.manifest(encoder) is not None
    return Champion(tags.get("version", ""), encoder if here else None)


class ChampionLookup:
    """Looks the champion up when it is needed: hours after the run began it may be another one."""

    def __init__(self, find: Callable[[], Champion]):
        self._find = find

    @cached_property
    def champion(self) -> Champion:
        return self._find()

    def find_encoder(self) -> Stage | None:
        return self.champion.encoder


def find_champion(parameters: Parameters, store: Store, uri: str) -> Champion:
    """Return the registry's champion where this run needs it, else an empty one."""
    if parameters.promotion.mode == "off" and "champion" not in parameters.chosen_arms:
        return Champion()
    champion = call_with_retries("champion", partial(read_champion, uri, store))
    if champion.version and champion.encoder is None:
        find_run_logger().warning(
            "the champion, version %s, is of another store: nothing is compared with it, "
            "and it stays champion",
            champion.version,
        )
    return champion


def register_model(
    parameters: Parameters,
    maker: PrefectStageMaker,
    champion: Champion,
    last: Stage,
    tracking: Tracking,
) -> None:
    """Register the encoder, with the fine-tuned model that `score` uses, as champion or
    challenger.
    """
    if parameters.promotion.mode == "off" or last.name != "report":
        return
    store = maker.store
    *_, encoder = [stage for stage in maker.stages if stage.name == "pretraining"]
    written = find_written(store, encoder)
    scorer = next(
        s
        for s in maker.stages
        if s.name == "finetuning"
        and "encoder" in s.inputs
        and s.inputs["encoder"].fingerprint == written.fingerprint
    )
    report = json.loads((store.fetch(last) / "report.json").read_text())
    rival = champion.encoder
    is_itself = rival is not None and rival.fingerprint == encoder.fingerprint
    arms = [row["arm"] for row in report["results"]]
    own = ADAPTED if ADAPTED in arms else "pre-trained"
    rival_arm = "champion" if rival and not is_itself else find_rival(arms)
    tags = {
        "encoder": encoder.fingerprint,
        "report": last.fingerprint,
        "scorer": scorer.fingerprint,
    }
    compared = own, rival_arm
    consider_promotion(parameters.promotion, report, tracking, compared, tags, champion)


def find_rival(arms: Sequence[str]) -> str:
    """Return the arm that a model has to beat where there is no champion: what it went on from,
    else an untrained one.
    """
    published = [arm for arm in arms if arm.endswith(AS_PUBLISHED)]
    return "base" if "base" in arms else published[0] if published else "random"


@dataclass(frozen=True)
class Decision:
    promote: bool
    reason: str


def decide_promotion(
    differences: Sequence[Mapping[str, Any]],
    tasks: Sequence[str],
    margin: float,
    rival: str,
    own: str = "pre-trained",
) -> Decision:
    """Decide by the study: the arm `own` must be better than the rival on every named task.

    With a margin (points), not worse by more than that is enough. "Better" and "not worse" are said
    of the 95% interval of the paired difference, never of the difference alone.
    """
    reasons, promote = [], True
    for task in tasks:
        difference = find_difference(own, rival, task, differences)
        if difference is None:
            reasons.append(f"{task}: not compared with {rival}")
            promote = False
            continue
        value, low, high = (100 * part for part in difference)
        fine = low > 0 or (margin > 0 and low >= -margin)
        words = (
            "better"
            if low > 0
            else f"not worse by more than {margin:g}"
            if fine
            else "not shown to be better"
        )
        reasons.append(
            f"{task}: {words} than {rival} ({value:+.1f} points, {low:+.1f} to {high:+.1f})"
        )
        promote = promote and fine
    return Decision(promote, "; ".join(reasons))


def find_difference(
    arm: str, rival: str, task: str, differences: Sequence[Mapping[str, Any]]
) -> tuple[float, float, float] | None:
    """Return arm − rival and its interval, whichever way round the report has it, or None."""
    for d in differences:
        if d["task"] == task and (d["a"], d["b"]) == (arm, rival):
            return d["difference"], d["low"], d["high"]
        if d["task"] == task and (d["a"], d["b"]) == (rival, arm):
            return -d["difference"], -d["high"], -d["low"]
    return None


def consider_promotion(
    wish: Promotion,
    report: Mapping[str, Any],
    tracking: Tracking,
    arms: tuple[str, str],
    tags: Mapping[str, str],
    champion: Champion,
) -> Decision:
    """Register the model of this run, and make it champion or challenger.

    `arms` are its own and the one it has to beat, `champion` the one that was there when its cells
    were made.
    """
    own, rival = arms
    decision = decide_promotion(report["differences"], wish.tasks, wish.margin, rival, own)
    try:
        if not tracking.wait_until_sent(SETTLE_SECONDS):
            raise RegistryAway("MLflow did not answer")
        return register_decision(decision, wish, report, tracking, tags, champion)
    except RegistryAway as away:
        find_run_logger().warning("the model is not registered; run the same again later: %s", away)
        return decision


def register_decision(
    decision: Decision,
    wish: Promotion,
    report: Mapping[str, Any],
    tracking: Tracking,
    tags: Mapping[str, str],
    champion: Champion,
) -> Decision:
    """Return the decision as it is carried out in the registry, after asking a person."""
    registry = Registry(tracking.uri)
    now = registry.get_by_alias("champion")
    if all(now.get(part) == tags[part] for part in ("encoder", "scorer")):
        find_run_logger().info("it is the champion already, version %s", now["version"])
        return decision
    version = registry.add_version(tracking.parent.id, "model", tags)
    if against := find_objection(registry, version, champion):
        decision = Decision(False, f"{against}; {decision.reason}")
    if wish.mode == "ask":
        decision = request_approval(decision, report, registry, version)
    if decision.promote:
        registry.promote(version, decision.reason)
    else:
        registry.set_challenger(version, decision.reason)
    is_champion = registry.get_by_alias("champion").get("version") == version
    role = "champion" if is_champion else "challenger"
    find_run_logger().info("version %s is %s: %s", version, role, decision.reason)
    return decision


def find_objection(registry: Registry, version: str, champion: Champion) -> str:
    """Return why a model must not replace the champion of this moment, or an empty text.

    This holds however well the model did in the study.
    """
    now = registry.get_by_alias("champion").get("version", "")
    if now != champion.version and now:
        return f"version {now} became champion meanwhile: run the same again to compare with it"
    if champion.version and champion.encoder is None:
        return (
            f"the champion, version {champion.version}, is of another store: not compared with it"
        )
    if back := registry.get_tags(version).get("rolled_back"):
        command = f"amazon-electra promote {version}"
        return f"rolled back {back}: only `{command}` makes it the champion again"
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
        return Decision(False, f"waits for `amazon-electra promote {version}`; {decision.reason}")
    registry.set_tag(version, "waiting", str(run.id))
    title, answered, reason = map(
        escape_markdown, (report["title"], report["answer"], decision.reason)
    )
    evidence = f"**{title}**\n\n{answered}\n\nBy the rule: {reason}"
    form = Approval.with_initial_data(description=evidence, approve=decision.promote, reason="")
    key = f"approval-{sha256(f'{version} {evidence}'.encode()).hexdigest()[:12]}"
    answer: Any = suspend_flow_run(wait_for_input=form, timeout=APPROVAL_SECONDS, key=key)
    registry.set_tag(version, "waiting", "")
    words = "approved" if answer.approve else "not approved"
    return Decision(
        answer.approve, f"{words}{': ' + answer.reason if answer.reason else ''}; {decision.reason}"
    )


def approve_version(registry: Registry, version: str, reason: str) -> bool:
    """Make a version the champion; return whether a run waited for that, which then goes on.

    The note of a run that could not be reached stays: the same command again reaches it.
    """
    waiting = registry.get_tags(version).get("waiting", "")
    registry.promote(version, reason)
    if not waiting:
        return False
    goes_on = resume_waiting_run(UUID(waiting), version, reason)
    registry.set_tag(version, "waiting", "")
    return goes_on


def resume_waiting_run(run: UUID, version: str, reason: str) -> bool:
    """Return whether the run was there and waited; raise PrefectUnavailable if out of reach."""
    try:
        resume_flow_run(run, run_input={"approve": True, "reason": reason})
    except (NotPausedError, ObjectNotFound, FlowPauseTimeout):
        return False
    except (HTTPError, RuntimeError) as error:
        cause = hide_credentials(str(error) or type(error).__name__).splitlines()[0]
        server = hide_credentials(PREFECT_API_URL.value() or "no address")
        raise PrefectUnavailable(
            f"version {version} is the champion, but the run {run} still waits for it: the Prefect "
            f"server at {server} did not take the answer ({cause}); once it is up "
            "(`amazon-electra up`), the same command again continues the run"
        ) from error
    return True
