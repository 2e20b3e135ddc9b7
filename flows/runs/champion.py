"""The registry's champion in a run: looks it up, and registers the run's model beside it."""

import json
from collections.abc import Callable, Sequence
from functools import cached_property, partial

from flows.configuration.parameters import Parameters
from flows.runner.prefect_tasks import PrefectStageMaker, call_with_retries
from flows.runner.run_log import find_run_logger
from flows.runner.store import Stage, Store
from flows.stages.arms import ADAPTED, AS_PUBLISHED
from flows.ui import promotion
from model.tracking.mlflow_run import Tracking


class ChampionLookup:
    """Looks the champion up when it is needed: hours after the run began it may be another one."""

    def __init__(self, find: Callable[[], promotion.Champion]):
        self._find = find

    @cached_property
    def champion(self) -> promotion.Champion:
        return self._find()

    def find_encoder(self) -> Stage | None:
        return self.champion.encoder


def find_champion(parameters: Parameters, store: Store, uri: str) -> promotion.Champion:
    """Return the registry's champion where this run needs it, else an empty one."""
    if parameters.promotion.mode == "off" and "champion" not in parameters.chosen_arms:
        return promotion.Champion()
    champion = call_with_retries("champion", partial(promotion.find_champion, uri, store))
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
    champion: promotion.Champion,
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
    scorer = next(
        s
        for s in maker.stages
        if s.name == "finetuning"
        and "encoder" in s.inputs
        and s.inputs["encoder"].fingerprint == encoder.fingerprint
    )
    folder = store.fetch(last)
    tracking.log_folder(folder / "model", "model")
    report = json.loads((folder / "report.json").read_text())
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
    promotion.consider_promotion(parameters.promotion, report, tracking, compared, tags, champion)


def find_rival(arms: Sequence[str]) -> str:
    """Return the arm that a model has to beat where there is no champion: what it went on from,
    else an untrained one.
    """
    published = [arm for arm in arms if arm.endswith(AS_PUBLISHED)]
    return "base" if "base" in arms else published[0] if published else "random"
