"""The registry's champion in a run: looks it up, and registers the run's model beside it."""

import json
from collections.abc import Callable
from functools import cached_property, partial

from flows.configuration.parameters import Parameters
from flows.runner.prefect_tasks import PrefectStageMaker, call_with_retries
from flows.runner.run_log import find_run_logger
from flows.runner.store import Stage, Store
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
    if parameters.promotion.mode == "off" and "champion" not in parameters.finetuning.arms:
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
    tracking.log_folder(store.folder(last) / "model", "model")
    report = json.loads((store.folder(last) / "report.json").read_text())
    rival = champion.encoder
    is_itself = rival is not None and rival.fingerprint == encoder.fingerprint
    arms = {row["arm"] for row in report["results"]}
    rival_arm = "champion" if rival and not is_itself else "base" if "base" in arms else "random"
    tags = {
        "encoder": encoder.fingerprint,
        "report": last.fingerprint,
        "scorer": scorer.fingerprint,
    }
    promotion.consider_promotion(parameters.promotion, report, tracking, rival_arm, tags, champion)
