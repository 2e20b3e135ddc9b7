"""Which model is the champion: decided by the study, on the named tasks, if asked for with a person's approval.

A run that asks is suspended: its process ends, and its machine is free for others, until a person answers in the
Prefect UI or by `amazon-electra promote`. Then it begins again, finds every stage complete, and reads the answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

from flows.parameters import Promotion
from flows.presentation import run_logger
from flows.store import Known, Stage, Store
from model.registry import Registry, RegistryAway
from model.tracking import Tracking, public

SETTLE_SECONDS = 120
"""For MLflow to take what a run has sent, before its model is registered."""
APPROVAL_SECONDS = 7 * 24 * 3600
"""A run that nobody answered by then fails, and its model stays challenger."""


class Approval(RunInput):
    """What a person says to the evidence."""

    approve: bool = Field(default=False, description="Make this model the champion")
    reason: str = Field(default="", description="Kept with the model")


class PrefectAway(ConnectionError):
    """The server of a run that waits did not take an answer."""


@dataclass(frozen=True)
class Champion:
    """The registry's, as a run finds it when it makes its cells."""

    version: str = ""
    """Empty where there is none."""
    encoder: Stage | None = None
    """Where this store has it."""


def champion_in(uri: str, store: Store) -> Champion:
    """RegistryAway where MLflow does not answer: that is not the same as none."""
    found = Registry(uri).having("champion")
    fingerprint = found.get("encoder", "")
    encoder = Known("pretraining", 0, {}, known=fingerprint, title="champion")
    here = fingerprint and store.manifest(encoder) is not None
    return Champion(found.get("version", ""), encoder if here else None)


@dataclass(frozen=True)
class Decision:
    promote: bool
    reason: str


def decide(differences: Sequence[Mapping[str, Any]], tasks: Sequence[str], margin: float, rival: str) -> Decision:
    """Better than the rival on every named task; with a margin (points), not worse by more than that is enough.

    "Better" and "not worse" are said of the 95% interval of the paired difference, never of the difference alone.
    """
    reasons, promote = [], True
    for task in tasks:
        difference = between("pre-trained", rival, task, differences)
        if difference is None:
            reasons.append(f"{task}: not compared with {rival}")
            promote = False
            continue
        value, low, high = (100 * part for part in difference)
        fine = low > 0 or (margin > 0 and low >= -margin)
        words = "better" if low > 0 else f"not worse by more than {margin:g}" if fine else "not shown to be better"
        reasons.append(f"{task}: {words} than {rival} ({value:+.1f} points, {low:+.1f} to {high:+.1f})")
        promote = promote and fine
    return Decision(promote, "; ".join(reasons))


def between(
    arm: str, rival: str, task: str, differences: Sequence[Mapping[str, Any]]
) -> tuple[float, float, float] | None:
    """arm − rival with its interval, whichever way round the report has it."""
    for d in differences:
        if d["task"] == task and (d["a"], d["b"]) == (arm, rival):
            return d["difference"], d["low"], d["high"]
        if d["task"] == task and (d["a"], d["b"]) == (rival, arm):
            return -d["difference"], -d["high"], -d["low"]
    return None


def consider(
    wish: Promotion,
    report: Mapping[str, Any],
    tracking: Tracking,
    rival: str,
    tags: Mapping[str, str],
    champion: Champion,
) -> Decision:
    """Registers the model of this run, and makes it champion or challenger.

    `rival` is the arm it has to beat, `champion` the one that was there when its cells were made.
    """
    decision = decide(report["differences"], wish.tasks, wish.margin, rival)
    try:
        if not tracking.settle(SETTLE_SECONDS):
            raise RegistryAway("MLflow did not answer")
        return settled(decision, wish, report, tracking, tags, champion)
    except RegistryAway as away:
        run_logger().warning("the model is not registered; run the same again later: %s", away)
        return decision


def settled(
    decision: Decision,
    wish: Promotion,
    report: Mapping[str, Any],
    tracking: Tracking,
    tags: Mapping[str, str],
    champion: Champion,
) -> Decision:
    """The decision as the registry has it, and as a person had it who was asked."""
    registry = Registry(tracking.uri)
    now = registry.having("champion")
    if all(now.get(part) == tags[part] for part in ("encoder", "scorer")):
        run_logger().info("it is the champion already, version %s", now["version"])
        return decision
    version = registry.add(tracking.parent.id, "model", tags)
    if against := objection(registry, version, champion):
        decision = Decision(False, f"{against}; {decision.reason}")
    if wish.mode == "ask":
        decision = asked(decision, report, registry, version)
    if decision.promote:
        registry.promote(version, decision.reason)
    else:
        registry.challenge(version, decision.reason)
    role = "champion" if is_champion(registry, version) else "challenger"
    run_logger().info("version %s is %s: %s", version, role, decision.reason)
    return decision


def objection(registry: Registry, version: str, champion: Champion) -> str:
    """Why a model is not to replace the champion of this moment, however it did in the study; empty: nothing."""
    now = registry.having("champion").get("version", "")
    if now != champion.version and now:
        return f"version {now} became champion meanwhile: run the same again to compare with it"
    if champion.version and champion.encoder is None:
        return f"the champion, version {champion.version}, is of another store: not compared with it"
    if back := registry.tags(version).get("rolled_back"):
        return f"rolled back {back}: only `amazon-electra promote {version}` makes it the champion again"
    return ""


def is_champion(registry: Registry, version: str) -> bool:
    return registry.having("champion").get("version") == version


def asked(decision: Decision, report: Mapping[str, Any], registry: Registry, version: str) -> Decision:
    """What a person says, who sees the evidence above the form. Suspends the run until then.

    The answer belongs to the evidence: a run that begins again with other evidence, because the champion is another
    by now, asks again.
    """
    registry.challenge(version, f"waits for approval; {decision.reason}")
    context = FlowRunContext.get()
    run = context.flow_run if context else None
    if run is None or run.deployment_id is None:
        return Decision(False, f"waits for `amazon-electra promote {version}`; {decision.reason}")
    registry.note(version, "waiting", str(run.id))
    evidence = f"**{report['title']}**\n\n{report['answer']}\n\nBy the rule: {decision.reason}"
    form = Approval.with_initial_data(description=evidence, approve=decision.promote, reason="")
    key = f"approval-{sha256(f'{version} {evidence}'.encode()).hexdigest()[:12]}"
    answer: Any = suspend_flow_run(wait_for_input=form, timeout=APPROVAL_SECONDS, key=key)
    registry.note(version, "waiting", "")
    words = "approved" if answer.approve else "not approved"
    return Decision(answer.approve, f"{words}{': ' + answer.reason if answer.reason else ''}; {decision.reason}")


def approve(registry: Registry, version: str, reason: str) -> bool:
    """Makes a version the champion; whether a run was waiting for that, which then goes on.

    The note of a run that could not be told stays: the same again tells it.
    """
    waiting = registry.tags(version).get("waiting", "")
    registry.promote(version, reason)
    if not waiting:
        return False
    goes_on = resumed(UUID(waiting), version, reason)
    registry.note(version, "waiting", "")
    return goes_on


def resumed(run: UUID, version: str, reason: str) -> bool:
    """Whether the run was there and waited; PrefectAway where it was not told."""
    try:
        resume_flow_run(run, run_input={"approve": True, "reason": reason})
    except (NotPausedError, ObjectNotFound, FlowPauseTimeout):
        return False
    except (HTTPError, RuntimeError) as error:
        said = public(str(error) or type(error).__name__).splitlines()[0]
        raise PrefectAway(
            f"version {version} is the champion, but the run {run} still waits for it: the Prefect server at "
            f"{public(PREFECT_API_URL.value() or 'no address')} did not take the answer ({said}); once it is up "
            "(`amazon-electra up`), the same command again has the run go on"
        ) from error
    return True
