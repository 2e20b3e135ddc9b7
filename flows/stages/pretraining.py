"""Pre-training: shards → the discriminator and the generator, as transformers folders."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from beam_jobs.core.errors import UserError
from flows.configuration.form import Parameters
from flows.runner.logs import find_run_logger
from flows.runner.processes import run_job
from flows.runner.references import Referred
from flows.stages.origin import MODEL_TYPE, locate_origin, locate_stage
from flows.stages.versions import VERSIONS
from flows.store.store import ACCELERATOR, Stage, Store
from model.finetuning.examples import Split
from model.finetuning.tasks.corpus import CORPUS_SPLITS, POLARITY
from model.recipes import (
    GENERATOR_DEPTH,
    MASK_PROBABILITIES,
    NEW_HEAD_SETTINGS,
    OLD_HEAD_SETTINGS,
    RECIPES,
    Recipe,
    apply_settings,
)

OF_A_PROBE = ("probe_train", "probe_dev", "write_last")
UNPROTECTED = (
    "%s: no probe is taken, for there is no corpus with reviews of 1–2 and of 4–5 stars in its "
    "train and dev splits: nothing protects the published weights, the last state is written"
)
KEEP = "keep_checkpoints"
"""Setting without which a stage that is complete has no checkpoints any more."""
OF_VALIDATION = ("validate_every", "validate_sequences")
"""Settings that decide nothing where nothing is measured."""


def check_device(device: str) -> None:
    """Raise UserError, before anything is made, where the device is not there: training comes hours
    after the data.
    """
    if device in ("auto", "cpu"):
        return
    with TemporaryDirectory() as folder:
        try:
            run_job("model.device", [device], Path(folder, "log.txt"))
        except UserError as missing:
            raise UserError(str(missing).replace("--device ", "device=")) from None


@dataclass(frozen=True)
class PretrainingRequest:
    """What all pre-trainings say: the recipe, the settings that differ from it, the seed."""

    recipe: str
    settings: Mapping[str, str]
    seed: int
    device: str
    title: str = "pre-training"
    threads: int = 0
    """Of the CPU, in each process; 0: all cores. It decides the time, not the result."""
    origin: Stage | None = None
    """The published encoder it starts from, which says the shape; None: random weights."""
    processes: int = 1
    """That share each batch; they decide the time, not the result."""
    dev: Stage | None = None
    """Shards of dev reviews, on which it measures itself; None: it does not. No weight depends on
    them.
    """
    beside: int = 0
    """Jobs that run at the same time; a training on a CPU leaves each a core."""
    is_probed: bool = True
    """Whether labels of the dump say which weights are kept, where it starts from a published
    encoder: only where all arms read all labels, or this one would have read more than the others.
    """

    @property
    def resolved(self) -> Recipe:
        return apply_settings(RECIPES[self.recipe], dict(self.settings))


def describe_training(parameters: Parameters) -> PretrainingRequest:
    """Return the pre-training that the form of a run describes."""
    chosen, recipe = parameters.pretraining, RECIPES[parameters.recipe]
    return PretrainingRequest(
        parameters.recipe,
        chosen.settings,
        chosen.seed,
        chosen.device,
        processes=chosen.processes,
        is_probed=not parameters.finetuning.labels and recipe.finetuning.n_train is None,
    )


def has_accelerator(device: str) -> bool:
    """Return whether training on this device takes a GPU or TPU, without torch, which is slow."""
    here = [*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("accel*")]
    return device in ("cuda", "xla", "xla-spmd") or (device == "auto" and bool(here))


def shares_cores(parameters: Parameters) -> bool:
    """Return whether jobs side by side share a CPU, rather than take turns at an accelerator.

    Of a worker elsewhere only the form says what it trains on.
    """
    device = parameters.pretraining.device
    if parameters.engine.placement == "pools":
        return device == "cpu"
    return not has_accelerator(device)


def build_pretraining_stage(
    parameters: Parameters,
    shards: Stage,
    *,
    origin: Stage | None = None,
    dev: Stage | None = None,
    beside: int = 0,
) -> Stage:
    """Return the pre-training that the form describes; the shards `dev` measure it.

    On a CPU it leaves `beside` cores to jobs that run at the same time.
    """
    training, steps = describe_training(parameters), parameters.pretraining.steps
    training = replace(training, origin=origin, dev=dev, beside=beside)
    if origin and training.recipe == "published" and not steps and "steps" not in training.settings:
        own = {"steps": 0, "tokens": TOKENS, "passes": PASSES}
        more = partial(list_token_steps, training.resolved.pretraining.batch, shards)
        return build_stage(training, {"shards": shards}, own, more)
    return build_training_stage(training, shards, steps)


TOKENS, PASSES = 30_000_000, 3
"""Of the adaptation of a published encoder: so many tokens, or so many times the dump's text where
that is less (docs/results.md).
"""
FEWEST_TOKENS = 3_000_000
"""Fewer gained nothing in any study."""
TOKENS_PER_SENTENCE = 17
"""Of reviews, on average over the 79,278 real ones of docs/results.md."""


def is_adaptation_optional(parameters: Parameters) -> bool:
    """Return whether a dump with too little text goes without adaptation: nobody asks for it."""
    chosen = parameters.pretraining
    asked = chosen.steps or "steps" in chosen.settings
    asked = asked or "pre-trained" in parameters.finetuning.arms
    return parameters.recipe == "published" and not asked


def is_worth_adapting(parameters: Parameters, corpus: Stage, store: Store) -> bool:
    """Return whether the dump has text enough for an adaptation that gains; true where somebody
    asks for steps, and where nothing is known of the text yet.
    """
    made = store.manifest(corpus)
    if not is_adaptation_optional(parameters) or not made:
        return True
    counts = made["result"]
    share = counts["splits"].get("pretrain", 0) / max(1, counts["kept"])
    tokens = PASSES * TOKENS_PER_SENTENCE * counts["sentences"] * share
    if tokens < FEWEST_TOKENS:
        find_run_logger().warning(
            "no adaptation: %d passes over the text of this dump are about %.1f million tokens; "
            "fewer than %d million gained nothing in any study (pretraining.steps=N trains all "
            "the same)",
            PASSES,
            tokens / 1e6,
            FEWEST_TOKENS // 1_000_000,
        )
    return tokens >= FEWEST_TOKENS


def list_token_steps(batch: int, shards: Stage, store: Store) -> list[str]:
    """Return the option that sets the steps to TOKENS or PASSES, whichever is less."""
    made = store.manifest(shards)
    counts = made["result"] if made else {"tokens": 0, "sequences": 0}
    passes = PASSES * counts["tokens"]
    share = min(1.0, TOKENS / max(1, passes))
    return ["--steps", str(max(1, round(share * PASSES * counts["sequences"] / batch)))]


def build_training_stage(training: PretrainingRequest, shards: Stage, steps: int) -> Stage:
    """Return the pre-training on these shards; `steps` 0: as many as the recipe says."""
    return build_stage(training, {"shards": shards}, {"steps": steps}, partial(list_steps, steps))


def list_steps(steps: int, store: Store) -> list[str]:
    """Return the option that sets the steps; none for as many as the recipe says."""
    return ["--steps", str(steps)] if steps else []


def list_probe_options(store: Store, corpus: Stage) -> list[str]:
    """Return the option that measures a published start on the corpus's labels; none where the
    corpus lacks reviews with 1–2 or with 4–5 stars to train on or in its dev split.
    """
    made = store.manifest(corpus)
    counts: dict[str, int] = made["result"].get("stars", {}) if made else {}
    probed: tuple[Split, ...] = ("train", "dev")
    for split in probed:
        classes = {
            POLARITY[n] for n in POLARITY for s in CORPUS_SPLITS[split] if counts.get(f"{s}.{n}")
        }
        if len(classes) < 2:
            return []
    return ["--probe", str(store.fetch(corpus))]


def build_equal_stage(
    training: PretrainingRequest,
    shards: Stage,
    other: Stage,
    budget: str,
    count: Callable[[Store], int],
) -> Stage:
    """Return a pre-training that costs as much as another one.

    `budget` names what is equal (`same_flops_as`, `same_tokens_as`), `count` returns the steps once
    both shards are there.
    """
    own = {"steps": 0, budget: other.fingerprint}
    return build_stage(training, {"shards": shards}, own, partial(count_equal_steps, count))


def count_equal_steps(
    count: Annotated[Callable[[Store], int], Referred()], store: Store
) -> list[str]:
    """Return the option that sets the steps to what `count` says."""
    return ["--steps", str(count(store))]


def build_stage(
    training: PretrainingRequest,
    inputs: Mapping[str, Stage],
    own: Mapping[str, Any],
    list_more: Callable[[Store], list[str]],
) -> Stage:
    """Return what all pre-trainings share; `own` and `list_more` are this one's."""
    origin = training.origin
    recipe = RECIPES[training.recipe]
    shape = {} if origin else {"recipe.architecture": recipe.architecture.model_dump()}
    begun, measured = {"origin": origin}, {"dev_shards": training.dev}
    inputs = {**inputs, **{n: stage for n, stage in (begun | measured).items() if stage}}
    corpus = inputs["shards"].inputs.get("corpus") if origin else None
    if corpus and training.is_probed:
        inputs["corpus"] = corpus
    deciding = {name: text for name, text in training.settings.items() if name != KEEP}
    return Stage(
        "pretraining",
        VERSIONS["pretraining"],
        {
            "recipe": training.recipe,
            **shape,
            "recipe.pretraining": recipe.pretraining.model_dump(),
            **own,
            "seed": training.seed,
            "settings": deciding,
            **({"start_defaults": list_start_defaults(origin, deciding)} if origin else {}),
        },
        inputs,
        "model.pretrain",
        partial(format_arguments, training, inputs, list_more),
        title=training.title,
        tags=(ACCELERATOR,),
        scratch=() if KEEP in training.settings else ("checkpoints",),
        tracked=True,
    )


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


def format_arguments(
    training: PretrainingRequest,
    inputs: Mapping[str, Stage],
    list_more: Annotated[Callable[[Store], list[str]], Referred()],
    store: Store,
    folder: Path,
) -> list[str]:
    """Return the command line of a pre-training; `list_more` are the options of its kind alone."""
    settings = {**training.settings, "seed": str(training.seed)}
    origin, corpus, dev = training.origin, inputs.get("corpus"), training.dev
    validation: list[str] = []
    if dev and (made := store.manifest(dev)) and made["result"]["sequences"]:
        validation = ["--validation", str(store.fetch(dev))]
    probe = list_probe_options(store, corpus) if corpus else []
    unread: tuple[str, ...] = ()
    if not probe and (origin or corpus) and training.is_probed:
        find_run_logger().warning(UNPROTECTED, training.title)
    if not probe and (origin or corpus or not training.is_probed):
        unread += OF_A_PROBE
    if not (validation or probe):  # as where a dump is so small that it has no dev reviews
        unread += OF_VALIDATION
    threads = training.threads  # 0: all cores, or an accelerator
    if not threads and training.beside and not has_accelerator(training.device):
        threads = max(1, ((os.cpu_count() or 1) - training.beside) // training.processes)
    settings = {name: text for name, text in settings.items() if name not in unread}
    return [
        *["--shards", locate_stage(store, inputs["shards"])],
        *["--output", str(folder)],
        *["--recipe", training.recipe, "--device", training.device],
        *(["--start-from", str(locate_origin(store, origin))] if origin else []),
        *validation,
        *probe,
        *(["--processes", str(training.processes)] if training.processes > 1 else []),
        *(["--threads", str(threads)] if threads else []),
        *list_more(store),
        *(word for field, value in settings.items() for word in ("--set", f"{field}={value}")),
    ]


def resolve_recipe(stage: Stage) -> Recipe:
    """Return the recipe of a pre-training with its settings; that of the smallest recipe where the
    stage is known by its fingerprint alone.
    """
    told = stage.parameters
    return apply_settings(RECIPES[told.get("recipe", "sample")], dict(told.get("settings", {})))


def locate_encoder(store: Store, stage: Stage) -> str:
    """Return the transformers folder (or hub name) of an encoder that is there to be fine-tuned."""
    if stage.name == "origin":
        return str(locate_origin(store, stage))
    if stage.name != "pretraining":
        return locate_stage(store, stage)
    return str(locate_exported_folder(store, stage))


def locate_exported_folder(store: Store, stage: Stage) -> Path:
    """Return the folder of the encoder that is there to be fine-tuned
    (model/pretraining/outputs.py); before it is made, the one that its settings lead to.
    """
    is_electra = resolve_recipe(stage).pretraining.objective == "electra"
    names = ("discriminator", "encoder") if is_electra else ("encoder", "discriminator")
    folder = store.fetch(stage, *names, "generator")
    places = [folder / name for name in names]
    return next((place for place in places if place.is_dir()), places[0])
