"""Trainings of an encoder: on shards, or on the titles and bodies of a corpus."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.settings import replace_settings
from amazon_electra.flows.configuration.form import CONTRASTIVE, Parameters
from amazon_electra.flows.policy import PASSES, TOKENS
from amazon_electra.flows.stages.origin import get_name
from amazon_electra.flows.store.stage import Resources, Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.config import (
    CONTRASTIVE_VERSION,
    FREE_CONTRASTIVE_SETTINGS,
    ContrastiveConfig,
    PretrainConfig,
    TrainingResources,
)
from amazon_electra.model.pretraining import VERSION
from amazon_electra.model.pretraining.objectives import find_objective
from amazon_electra.model.recipes import ADAPTATION_DEFAULTS, RECIPES, Recipe, apply_settings

ADAPTATIONS = ("pretraining", "contrastive-adaptation")  # stages that train an encoder
KEEP = "keep_checkpoints"  # without this setting a complete stage has none any more


class TrainingConfig(PretrainConfig):
    """What decides a pre-training besides its inputs; its seed and, where they are asked for, its
    steps are among `settings`.
    """

    tokens: int | None = None
    """So many, but no more than PASSES through the shards."""
    same_flops_as: str | None = None
    """Fingerprint of a pre-training that computes as many matrix products; the input `equal`."""
    same_tokens_as: str | None = None


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
        recipe, described = RECIPES[self.config.recipe], self.config.model_dump(mode="json")
        described["settings"].pop(KEEP, None)
        described["recipe.pretraining"] = recipe.pretraining.model_dump()
        if "origin" in self.inputs:
            described["start_defaults"] = dict(ADAPTATION_DEFAULTS)
        else:
            described["recipe.architecture"] = recipe.architecture.model_dump()
        return described

    def locate(self, store: Store, on_engine: bool = False) -> str:
        """Return the encoder to fine-tune; before it is made, the one that its settings lead to."""
        trunk = find_objective(resolve_recipe(self).pretraining.objective).trunk
        names = dict.fromkeys([trunk, "encoder", "discriminator"])
        folder = store.fetch(self, *names, "generator")
        places = [folder / name for name in names]
        return str(next((place for place in places if place.is_dir()), places[0]))

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.model.pretrain import pretrain

        origin, dev = (self.inputs.get(name) for name in ("origin", "dev_shards"))
        made = dev and store.manifest(dev)
        return pretrain(
            self.config.narrow(PretrainConfig).replace(steps=self.count_steps(store)),
            Path(self.inputs["shards"].locate(store)),
            folder,
            start_from=Path(origin.locate(store)) if origin else None,
            validation=store.fetch(dev) if dev and made and made["result"]["sequences"] else None,
            resources=divide_cores(self.resources),
        ).content

    def count_steps(self, store: Store) -> int | None:
        """Return the steps that its shards and its budget lead to; None without a budget."""
        config, batch = self.config, resolve_recipe(self).pretraining.batch
        if config.tokens:
            counts = (store.manifest(self.inputs["shards"]) or {})["result"]
            share = min(1.0, config.tokens / max(1, PASSES * counts["tokens"]))
            return max(1, round(share * PASSES * counts["sequences"] / batch))
        if other := self.reads.get("equal"):
            how = self.resources.device, bool(config.same_flops_as)
            ratio = measure_step(store, other, *how) / measure_step(store, self, *how)
            return max(1, round(resolve_recipe(other).pretraining.steps * ratio))
        return None


class ContrastiveAdaptation(Stage):
    """`origin` and `corpus` → an encoder."""

    name, version, Config = "contrastive-adaptation", CONTRASTIVE_VERSION, ContrastiveConfig
    headline = ("pairs", "steps", "loss", "accuracy")
    ends_run = True
    inner = "encoder"
    tracked = True
    takes_accelerator = True

    @property
    def scratch(self) -> tuple[str, ...]:
        return ("checkpoints",) if self.config.keep_checkpoints == 1 else ()

    @property
    def parameters(self) -> Mapping[str, Any]:
        free = FREE_CONTRASTIVE_SETTINGS
        return {n: v for n, v in super().parameters.items() if n not in free}

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.model.contrastive import adapt_contrastively

        made = adapt_contrastively(
            self.config,
            Path(self.inputs["origin"].locate(store)),
            [Path(self.inputs["corpus"].locate(store))],
            folder,
            divide_cores(self.resources.replace(beside=0)),
            yields=self.resources.beside > 0,
        )
        return asdict(made)


def resolve_recipe(stage: Stage) -> Recipe:
    """Return the recipe of a pre-training with its settings; the smallest if none is known."""
    given = stage.parameters
    return apply_settings(RECIPES[given.get("recipe", "sample")], given.get("settings", {}))


def measure_step(store: Store, training: Stage, device: str, is_flops: bool) -> float:
    """Return the matrix products of a step of a training on a device, or its tokens."""
    from amazon_electra.model.device import expect_document_attention
    from amazon_electra.model.pretraining.assembly import estimate_sequence_flops
    from amazon_electra.model.pretraining.input.sequences import Shards

    recipe = resolve_recipe(training)
    shards = Shards.open(Path(training.inputs["shards"].locate(store)))
    of_sequence = shards.tokens / shards.sequences
    if is_flops:
        within_documents = expect_document_attention(device, recipe.pretraining.precision)
        of_sequence = estimate_sequence_flops(recipe, shards, within_documents)
    return float(recipe.pretraining.batch * of_sequence)


def divide_cores(given: Resources) -> TrainingResources:
    """Return a training's share of the cores: on a CPU the jobs beside it have one each."""
    threads, device, processes = given.threads, given.device, given.processes
    if not threads and given.beside and not has_accelerator(device):
        threads = max(1, ((os.cpu_count() or 1) - given.beside) // processes)
    chosen: Any = {"device": device, "processes": processes if processes > 1 else None}
    return TrainingResources(**chosen, threads=threads or None)


def has_accelerator(device: str) -> bool:
    """Return whether training on this device takes a GPU or TPU, without torch, which is slow."""
    here = [*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("accel*")]
    return device in ("cuda", "xla", "xla-spmd") or (device == "auto" and bool(here))


def build_training(
    config: TrainingConfig,
    shards: Stage,
    resources: Resources,
    *,
    title: str = "pre-training",
    origin: Stage | None = None,
    dev: Stage | None = None,
    equal: Stage | None = None,
) -> Pretraining:
    """Return a pre-training on these shards, from `origin` or random weights, on a budget by that
    of the pre-training `equal` perhaps.
    """
    found = {"shards": shards, "origin": origin, "dev_shards": dev}
    inputs = {name: stage for name, stage in found.items() if stage}
    reads = {"equal": equal} if equal else {}
    return Pretraining(config, inputs, reads=reads, resources=resources, title=title)


def build_pretraining_stage(
    p: Parameters, shards: Stage, origin: Stage | None, dev: Stage | None, beside: int = 0
) -> Pretraining:
    """Return the pre-training of the form; on a CPU it leaves `beside` cores to other jobs."""
    chosen, more = p.pretraining, dict[str, Any](recipe=p.recipe)
    settings = {**chosen.trainer_settings, "seed": str(chosen.seed)}
    if chosen.steps:
        settings["steps"] = str(chosen.steps)
    elif origin and p.recipe == "published":
        more["tokens"] = TOKENS
    resources = Resources(device=chosen.device, processes=chosen.processes, beside=beside)
    config = TrainingConfig(settings=settings, **more)
    return build_training(config, shards, resources, origin=origin, dev=dev)


def build_contrastive_stage(p: Parameters, corpus: Stage, origin: Stage) -> ContrastiveAdaptation:
    """Return the adaptation of the form; on a CPU it leaves cores to the jobs beside it."""
    chosen, beside = p.pretraining, p.finetuning.at_once - 1
    settings = chosen.settings if chosen.objective == CONTRASTIVE else {}
    [config] = replace_settings([ContrastiveConfig(seed=chosen.seed)], settings, "pretraining")
    device, inputs = chosen.finetuning_device, {"corpus": corpus, "origin": origin}
    resources = Resources(device=device, processes=chosen.processes, beside=beside)
    title = f"adaptation of {get_name(origin)}"
    return ContrastiveAdaptation(config, inputs, resources=resources, title=title)
