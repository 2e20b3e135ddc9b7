"""Pre-training: shards → the discriminator and the generator, as transformers folders."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from pydantic import Field

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.settings import Settings
from amazon_electra.flows.configuration.form import Parameters
from amazon_electra.flows.policy import PASSES, TOKENS
from amazon_electra.flows.runner.processes import run_job
from amazon_electra.flows.stages.equal_cost import (
    count_equal_flops,
    count_equal_tokens,
    resolve_recipe,
)
from amazon_electra.flows.stages.external import locate_stage
from amazon_electra.flows.stages.origin import MODEL_TYPE, locate_origin
from amazon_electra.flows.store.stage import Resources, Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.config import PretrainConfig, TrainingResources
from amazon_electra.model.pretraining import VERSION
from amazon_electra.model.pretraining.objectives import find_objective
from amazon_electra.model.recipes import (
    GENERATOR_DEPTH,
    MASK_PROBABILITIES,
    NEW_HEAD_SETTINGS,
    OLD_HEAD_SETTINGS,
    RECIPES,
    Recipe,
    apply_settings,
)

VALIDATION_FIELDS = ("validate_every", "validate_sequences")
"""Settings that decide nothing where nothing is measured."""
ADAPTATIONS = ("pretraining", "contrastive-adaptation")
"""Names of the stages that train an encoder."""
KEEP = "keep_checkpoints"
"""Setting without which a stage that is complete has no checkpoints any more."""


Budget = Literal["same_flops_as", "same_tokens_as"]


class TrainingConfig(Settings):
    """What decides a pre-training besides its inputs."""

    recipe: str
    settings: dict[str, str] = Field(default={})
    """That differ from the recipe's."""
    seed: int = 0
    steps: int | None = None
    """None: as many as `tokens`, `same_flops_as` or `same_tokens_as` come to, else as the recipe
    says."""
    tokens: int | None = None
    passes: int = 0
    """With `tokens`: no more than so many passes through the shards."""
    same_flops_as: str | None = None
    """Fingerprint of a pre-training that computes as many matrix products; the input `equal`."""
    same_tokens_as: str | None = None

    @property
    def recipe_with_settings(self) -> Recipe:
        return apply_settings(RECIPES[self.recipe], self.settings)


class Pretraining(Stage):
    """`shards` → an encoder. `origin` is the published encoder that it begins with; without it it
    begins with random weights. `dev_shards` measure it and decide no weight.
    """

    name, version, Config = "pretraining", VERSION, TrainingConfig
    headline = ("steps", "tokens", "mlm_loss", "generator_loss", "discriminator_loss")
    ends_run = True
    tracked = True
    takes_accelerator = True

    @property
    def scratch(self) -> tuple[str, ...]:
        return () if KEEP in self.config.settings else ("checkpoints",)

    @property
    def parameters(self) -> Mapping[str, Any]:
        config, origin = self.config, self.inputs.get("origin")
        recipe = RECIPES[config.recipe]
        shape = {} if origin else {"recipe.architecture": recipe.architecture.model_dump()}
        deciding = {name: text for name, text in config.settings.items() if name != KEEP}
        return {
            **config.model_dump(mode="json", exclude={"settings"}),
            **shape,
            "recipe.pretraining": recipe.pretraining.model_dump(),
            "settings": deciding,
            **({"start_defaults": list_start_defaults(origin, deciding)} if origin else {}),
        }

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.model.pretrain import pretrain

        config, origin = self.config, self.inputs.get("origin")
        dev, validation = self.inputs.get("dev_shards"), None
        if dev and (made := store.manifest(dev)) and made["result"]["sequences"]:
            validation = store.fetch(dev)
        unread = () if validation else VALIDATION_FIELDS
        return pretrain(
            PretrainConfig(
                recipe=config.recipe,
                steps=self.count_steps(store) or None,
                settings={
                    **{n: text for n, text in config.settings.items() if n not in unread},
                    "seed": str(config.seed),
                },
            ),
            Path(locate_stage(store, self.inputs["shards"])),
            folder,
            start_from=locate_origin(store, origin) if origin else None,
            validation=validation,
            resources=divide_cores(self.resources),
        ).content

    def count_steps(self, store: Store) -> int:
        """Return its steps once its shards are there; 0: as many as the recipe says."""
        config = self.config
        if config.steps:
            return config.steps
        made = store.manifest(self.inputs["shards"])
        counts = made["result"] if made else {"tokens": 0, "sequences": 0}
        batch = config.recipe_with_settings.pretraining.batch
        if config.tokens:
            share = min(1.0, config.tokens / max(1, config.passes * counts["tokens"]))
            return max(1, round(share * config.passes * counts["sequences"] / batch))
        if config.same_flops_as:
            return count_equal_flops(self, self.reads["equal"], store)
        if config.same_tokens_as:
            return count_equal_tokens(self, self.reads["equal"], store)
        return 0


def check_device(device: str) -> None:
    """Raise UserError, before anything is made, where the device is not there: training comes hours
    after the data.
    """
    if device in ("auto", "cpu"):
        return
    with TemporaryDirectory() as folder:
        found = run_job("amazon_electra.model.device", [device], Path(folder, "log.txt"))
    if found["missing"]:
        raise UserError(found["missing"], "pretraining.device", device)


def divide_cores(given: Resources) -> TrainingResources:
    """Return a training's share of the cores: on a CPU the jobs beside it have one each."""
    threads, device = given.threads, given.device
    if not threads and given.beside and not has_accelerator(device):
        threads = max(1, ((os.cpu_count() or 1) - given.beside) // given.processes)
    return TrainingResources.model_validate(
        {
            "device": device,
            "processes": given.processes if given.processes > 1 else None,
            "threads": threads or None,
        }
    )


def has_accelerator(device: str) -> bool:
    """Return whether training on this device takes a GPU or TPU, without torch, which is slow."""
    here = [*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("accel*")]
    return device in ("cuda", "xla", "xla-spmd") or (device == "auto" and bool(here))


def shares_cores(device: str) -> bool:
    """Return whether jobs side by side share a CPU, rather than take turns at an accelerator."""
    return not has_accelerator(device)


@dataclass(frozen=True)
class PretrainingRequest:
    """What pre-trainings of a run or a study have in common."""

    recipe: str
    settings: Mapping[str, str]
    seed: int
    resources: Resources
    title: str = "pre-training"
    origin: Stage | None = None
    """The published encoder it starts from, which says the shape; None: random weights."""
    dev: Stage | None = None
    """Shards of dev reviews, on which it measures itself; None: it does not."""

    @property
    def resolved(self) -> Recipe:
        return apply_settings(RECIPES[self.recipe], dict(self.settings))


def describe_training(parameters: Parameters, beside: int = 0) -> PretrainingRequest:
    """Return the pre-training that the form of a run describes; on a CPU it leaves `beside` cores
    to jobs that run at the same time.
    """
    chosen = parameters.pretraining
    return PretrainingRequest(
        parameters.recipe,
        chosen.trainer_settings,
        chosen.seed,
        Resources(device=chosen.device, processes=chosen.processes, beside=beside),
    )


def build_training(
    training: PretrainingRequest,
    shards: Stage,
    inputs: Mapping[str, Stage] = {},
    reads: Mapping[str, Stage] = {},
    **budget: Any,
) -> Pretraining:
    """Return a pre-training on these shards; `budget` are the fields of TrainingConfig that decide
    its steps.
    """
    found: dict[str, Stage | None] = {"shards": shards, **inputs, "origin": training.origin}
    found["dev_shards"] = training.dev
    return Pretraining(
        TrainingConfig(
            recipe=training.recipe, settings=dict(training.settings), seed=training.seed, **budget
        ),
        {name: stage for name, stage in found.items() if stage},
        reads=reads,
        resources=training.resources,
        title=training.title,
    )


def build_pretraining_stage(
    parameters: Parameters,
    shards: Stage,
    *,
    origin: Stage | None = None,
    dev: Stage | None = None,
    beside: int = 0,
) -> Pretraining:
    """Return the pre-training that the form describes; the shards `dev` measure it."""
    steps = parameters.pretraining.steps
    training = replace(describe_training(parameters, beside), origin=origin, dev=dev)
    if origin and training.recipe == "published" and not steps and "steps" not in training.settings:
        return build_training(training, shards, tokens=TOKENS, passes=PASSES)
    return build_training(training, shards, steps=steps)


def build_equal_training(
    training: PretrainingRequest,
    shards: Stage,
    other: Stage,
    budget: Budget,
) -> Pretraining:
    """Return a pre-training that costs as much as another one."""
    spent: dict[str, Any] = {budget: other.fingerprint}
    return build_training(training, shards, reads={"equal": other}, **spent)


def list_start_defaults(origin: Stage, settings: Mapping[str, str]) -> list[dict[str, str]]:
    """Return what decides the settings by default of a training that begins with this encoder: that
    of ELECTRAs too where it may be one, or is to become one.
    """
    defaults = [dict(NEW_HEAD_SETTINGS), dict(OLD_HEAD_SETTINGS)]
    if share := MASK_PROBABILITIES.get(origin.result.get(MODEL_TYPE, "")):
        defaults.append({"mask_probability": str(share)})
    if "electra" in (origin.result.get(MODEL_TYPE, "electra"), settings.get("objective")):
        defaults.append({**OLD_HEAD_SETTINGS, "generator_depth": f"{GENERATOR_DEPTH:.2f}"})
    return defaults


def locate_encoder(store: Store, stage: Stage) -> str:
    """Return the transformers folder (or hub name) of an encoder that is there to be fine-tuned."""
    if stage.name == "origin":
        return str(locate_origin(store, stage))
    if stage.name == "contrastive-adaptation":
        return str(store.fetch(stage, "encoder") / "encoder")
    if stage.name != "pretraining":
        return locate_stage(store, stage)
    return str(locate_exported_folder(store, stage))


def locate_exported_folder(store: Store, stage: Stage) -> Path:
    """Return the folder of the encoder that is there to be fine-tuned
    (model/pretraining/save.py); before it is made, the one that its settings lead to.
    """
    trunk = find_objective(resolve_recipe(stage).pretraining.objective).trunk
    names = dict.fromkeys([trunk, "encoder", "discriminator"])
    folder = store.fetch(stage, *names, "generator")
    places = [folder / name for name in names]
    return next((place for place in places if place.is_dir()), places[0])
