"""How long a plan takes: the work of each stage by what it is made of, at the speed that stages of
its kind had in this store, or else at that of another machine.

`REFERENCE` gives the seconds of a stage from its work on two idle cores of an AMD EPYC. What this
store's manifests recorded, over what the table says of the same work, is this machine's factor.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import ceil, inf
from pathlib import Path
from statistics import median
from typing import Any

from flows.configuration.parameters import Parameters
from flows.dumps.preview import guess_reviews
from flows.runner.stage_runner import Plan
from flows.runner.store import Manifest, Stage, Store
from flows.stages.origin_folder import MODEL_TYPE
from flows.stages.pretraining import has_accelerator, resolve_preset
from model.pretraining.network.flops import MatrixFlops
from model.published.kinds import KINDS

REFERENCE = {
    "origin": (6.0, 0.0),
    "corpus": (3.0, 1.2e-4),
    "vocabulary": (0.6, 7e-5),
    "vocabulary-fit": (1.0, 3e-5),
    "shards": (1.5, 4e-5),
    "dev-shards": (1.5, 4e-5),
    "pretraining": (4.5, 1 / 2e11),
    "finetuning": (4.0, 1 / 2.1e11),
    "search": (4.0, 1 / 2.1e11),
    "latency": (10.0, 0.0),
    "report": (3.0, 0.0),
    "study": (3.0, 0.0),
    "scorer": (6.0, 0.0),
    "scores": (5.0, 1.2e-3),
}
"""Kind of stage → seconds to start, and for each review or operation: CPU seconds of the stages of
`amazon-electra run --dump sample:20000`; of scoring by tests/bench/scoring.py.
"""
TRAINED = ("pretraining", "finetuning", "search", "latency")
"""Kinds whose speed is that of the accelerator, where there is one."""
ELEMENT_OPERATIONS = 8e3
"""What a value of a layer's states costs besides the products of matrices, in a pass forwards, in
operations: norms, dropout, residual sums. Fitted to trainings of widths from 128 to 768 in bf16,
whose products alone seem to run at 0.8e11 to 1.6e11 a second, to 15%.
"""
STEP_OPERATIONS = 6e9
"""What a step of fine-tuning costs besides, in operations: 30 ms of the reference."""
PASSES = 3
"""Forwards, and backwards twice as much."""
TOKENS = 64
"""Of a text, about."""
EXAMPLE_BYTES = 300
"""Of an example in a file, about."""
FILE_SHARES = {"train": 80, "dev": 10, "test": 10}
"""Percent of a file's examples, about."""
SEARCH_SHARE = 0.5
"""Of a search's trials that are not pruned, about."""
SHAPE = ("layers", "hidden", "intermediate")
MINILM = (6, 384, 1536)
"""Shape of a published encoder that is not here yet, about."""
PUBLISHED_VOCABULARY = 30_522
"""Entries of one, about: BERT's."""
TINY = {"layers": 2, "hidden": 128, "intermediate": 512}
"""Shape of an encoder that says nothing: that of the smallest preset."""
NEWEST = 5
"""Manifests of a kind that tell this machine's speed."""


@dataclass(frozen=True)
class Estimate:
    """What is to do of a plan, and how long it takes."""

    plan: Plan
    seconds: Mapping[str, float | None]
    """Of every stage that is to do, by fingerprint; None where no speed is known."""
    measured: frozenset[str]
    """Kinds of stages whose speed this store recorded."""

    @property
    def todo(self) -> list[Stage]:
        """Return every stage that is to do, once."""
        stages = {s.fingerprint: s for s, is_complete in self.plan.stages if not is_complete}
        return list(stages.values())

    def sum_seconds(self, kind: str = "") -> float:
        """Return the seconds of a kind, or of all, whose speed is known; side by side where they
        are.
        """
        stages = [stage for stage in self.todo if kind in ("", stage.name)]
        return sum(
            (self.seconds[s.fingerprint] or 0.0) / self.plan.count_side_by_side(s) for s in stages
        )

    @property
    def unknown(self) -> set[str]:
        """Return the kinds that have no speed."""
        return {s.name for s in self.todo if self.seconds[s.fingerprint] is None}

    @property
    def guessed(self) -> set[str]:
        """Return the kinds whose speed is another machine's."""
        return {s.name for s in self.todo if self.seconds[s.fingerprint]} - self.measured


def estimate_run(plan: Plan, parameters: Parameters) -> Estimate:
    """Return how long a plan takes; the dump is looked at if it is still to be read."""
    stages = [stage for stage, is_complete in plan.stages if not is_complete]
    dump = next((s.inputs["dump"] for s in stages if "dump" in s.inputs), None)
    reviews = guess_reviews(parameters.dump, dump) if dump else 0
    return estimate_plan(plan, reviews, has_accelerator(parameters.pretraining.device))


def estimate_plan(plan: Plan, reviews: int, is_accelerated: bool = False) -> Estimate:
    """Return how long the stages of a plan take; `reviews` are those of the dump to be read."""
    planned = {stage.fingerprint: stage for stage, _ in plan.stages}
    factors = measure_factors(plan.store, is_accelerated)
    other = median(factors.values()) if factors else 1.0
    seconds: dict[str, float | None] = {}
    for stage, is_complete in plan.stages:
        if is_complete or stage.fingerprint in seconds:
            continue
        took = None
        if stage.name in factors or not (is_accelerated and stage.name in TRAINED):
            with suppress(LookupError):  # a stage of another graph than ours
                counted = settle_steps(stage, planned)
                work = count_work(resolve_stage(counted, plan.store), reviews)
                took = factors.get(stage.name, other) * get_reference_seconds(stage.name, work)
        seconds[stage.fingerprint] = took
    return Estimate(plan, seconds, frozenset(factors))


def settle_steps(stage: Stage, planned: Mapping[str, Stage]) -> Stage:
    """Return what is counted of a pre-training that gets as many tokens, or operations, as another
    one: the same with the steps of that one, or that one itself.
    """
    told = stage.parameters
    if other := planned.get(told.get("same_flops_as", "")):
        return other
    if other := planned.get(told.get("same_tokens_as", "")):
        mine, theirs = (resolve_preset(one).pretraining for one in (stage, other))
        steps = other.parameters.get("steps") or theirs.steps
        steps = max(1, round(steps * theirs.batch / mine.batch))
        return replace(stage, parameters={**told, "steps": steps})
    return stage


def get_reference_seconds(kind: str, work: float) -> float:
    """Return the seconds of a stage on the table's machine; one that no job makes takes none."""
    start, each = REFERENCE.get(kind, (0.0, 0.0))
    return start + each * work


def measure_factors(store: Store, is_accelerated: bool) -> dict[str, float]:
    """Return kind → this machine's seconds over those of the table, by the newest manifests."""
    ratios: dict[str, list[float]] = {}
    for manifest in reversed(store.list_manifests()):
        kind = manifest["stage"]
        found = ratios.setdefault(kind, [])
        if len(found) == NEWEST or kind not in REFERENCE or not manifest.get("seconds"):
            continue
        device = manifest["result"].get("device", "cpu")
        if kind not in TRAINED or is_accelerated != (device == "cpu"):
            with suppress(LookupError, TypeError, ValueError):  # one of an earlier version
                work = count_work(resolve_manifest(manifest, store), 0)
                found.append(manifest["seconds"] / get_reference_seconds(kind, work))
    return {kind: median(found) for kind, found in ratios.items() if found}


def resolve_stage(stage: Stage, store: Store) -> Stage:
    """Return a planned stage with the results of what is made of it already."""
    if (made := store.manifest(stage)) and not stage.inputs:
        return resolve_manifest(made, store)
    inputs = {name: resolve_stage(source, store) for name, source in stage.inputs.items()}
    return replace(stage, inputs=inputs, result=made["result"] if made else stage.result)


def resolve_manifest(manifest: Manifest, store: Store) -> Stage:
    """Return the stage that a manifest describes, with what it was made of and the results."""
    inputs = {
        name: resolve_manifest(origin, store)
        for name, source in manifest["inputs"].items()
        if (origin := store.read_manifest(source["stage"], source["fingerprint"]))
    }
    about = manifest["stage"], manifest["version"], manifest["parameters"], inputs
    return Stage(*about, result=manifest["result"])


def count_work(stage: Stage, reviews: int) -> float:
    """Return reviews, or operations of training; `reviews` are those of a dump not yet read."""
    if stage.name == "pretraining":
        return count_pretraining_operations(stage, reviews)
    if stage.name in ("finetuning", "search"):
        trials = max(1.0, stage.parameters.get("trials", 0) * SEARCH_SHARE)
        return trials * count_finetuning_operations(stage, reviews)
    return count_reviews(stage, reviews)


def count_reviews(stage: Stage, reviews: int) -> float:
    """Return how many reviews a stage goes through."""
    if "corpus" in stage.inputs:
        most = stage.parameters.get("sample_reviews", inf)
        return min(most, count_reviews(stage.inputs["corpus"], reviews))
    return float(stage.result.get("read", reviews))


def count_pretraining_operations(stage: Stage, reviews: int) -> float:
    """Return the operations of a pre-training: of its products, and of what else it does."""
    preset, length = resolve_preset(stage), find_length(stage)
    config, shards = preset.pretraining, read_shards(stage.inputs["shards"])
    steps = stage.result.get("steps") or stage.parameters.get("steps") or config.steps
    if "base" in stage.inputs and not (stage.result or stage.parameters.get("steps")):
        new = count_reviews(stage.inputs["shards"], reviews) * TOKENS / length
        kept = 1 - stage.parameters.get("replay_ratio", 0)
        steps = ceil((stage.parameters.get("epochs") or 1) * new / (config.batch * kept))
    positions = steps * config.batch * length
    size = shards.get("vocabulary_size", preset.vocabulary_size)
    architecture, objective = preset.architecture, config.objective
    if origin := find_origin(stage):
        shape = read_origin_shape(origin)
        architecture = replace(architecture, **shape, embedding=shape["hidden"], heads=1)
        kind = origin.result.get("kind") or origin.result.get(MODEL_TYPE)
        default = "electra" if kind == "electra" else "mlm"
        objective = stage.parameters["settings"].get("objective", default)
    networks = [architecture]
    if objective == "electra":
        networks.append(architecture.derive_generator())
    values = positions * sum(one.layers * one.hidden for one in networks)
    products = stage.result.get("matrix_flops")
    if products is None:
        counted = MatrixFlops.derive(architecture, size, objective, config.fixed_generator)
        masked = config.mask_probability * positions
        products = counted.count(positions, TOKENS * positions, masked)
    return float(products) + PASSES * ELEMENT_OPERATIONS * values


def find_length(stage: Stage) -> int:
    """Return the tokens of a sequence of a pre-training."""
    shards = read_shards(stage.inputs["shards"])
    return int(shards.get("max_length", resolve_preset(stage).max_length))


def read_shards(shards: Stage) -> Mapping[str, Any]:
    """Return length and vocabulary of shards that are made, were there, or will be made."""
    if shards.name == "external":
        about = Path(shards.result["path"]) / "shards.json"
        return json.loads(about.read_text()) if about.exists() else {}
    vocabulary = shards.inputs.get("vocabulary")
    known: dict[str, Any] = {}
    if vocabulary and vocabulary.name == "origin":
        known["vocabulary_size"] = vocabulary.result.get("vocabulary_size", PUBLISHED_VOCABULARY)
    elif vocabulary and "size" in vocabulary.parameters:
        known["vocabulary_size"] = vocabulary.parameters["size"]
    return {**known, **shards.parameters, **shards.result}


def find_origin(stage: Stage) -> Stage | None:
    """Return the published encoder that a stage is, or that it starts from, whenever that was."""
    if stage.name == "origin":
        return stage
    base = stage.inputs.get("base")
    return stage.inputs.get("origin") or (find_origin(base) if base else None)


def read_origin_shape(origin: Stage) -> dict[str, int]:
    """Return the shape of a published encoder, as far as it is known before it is loaded."""
    told = dict(origin.result)
    file = Path(str(told.get("place", ""))) / "config.json"
    if "layers" not in told and file.is_file():
        config = json.loads(file.read_text())
        kind = KINDS.get(config.get("model_type", ""), KINDS["bert"])
        told |= {name: config[kind.fields[name]] for name in SHAPE if kind.fields[name] in config}
    if "layers" in told and "hidden" in told:
        told.setdefault("intermediate", 4 * told["hidden"])
        return {name: int(told[name]) for name in SHAPE}
    return dict(zip(SHAPE, MINILM, strict=True))


def count_finetuning_operations(stage: Stage, reviews: int) -> float:
    """Return the operations of a fine-tuning with its evaluations on dev and test."""
    told, data = stage.parameters["settings"], stage.inputs.get("data")
    n = {
        split: stage.result.get(f"n_{split}")
        or min(told[f"n_{split}"] or float("inf"), count_examples(stage, data, split, reviews))
        for split in FILE_SHARES
    }
    passes = told["epochs"] * len(told["learning_rates"])
    evaluations = min(5, ceil(told["epochs"])) * len(told["learning_rates"])
    if told["evaluations_per_epoch"]:
        evaluations = told["evaluations_per_epoch"] * passes
    examples = PASSES * n["train"] * passes + n["dev"] * evaluations + n["test"]
    steps = ceil(n["train"] / told["batch"]) * passes
    return examples * TOKENS * count_token_operations(stage) + steps * STEP_OPERATIONS


def count_examples(stage: Stage, data: Stage | None, split: str, reviews: int) -> float:
    """Return about how many examples a split of a corpus, or of a file, has; what a manifest was
    made of is named in its result.
    """
    if data and data.name == "corpus":
        if "splits" in data.result:
            return float(data.result["splits"].get(split, 0))
        shares = dict(part.split("=") for part in data.parameters["split"].split(","))
        return count_reviews(data, reviews) * int(shares[split]) / 100
    given = str(data.result.get("path", "") if data else stage.result.get("data", ""))
    place = Path(given)
    inside = place.rglob("*") if given and place.is_dir() else []
    files = [place] if place.is_file() else inside
    size = sum(file.stat().st_size for file in files if file.is_file())
    return size / EXAMPLE_BYTES * FILE_SHARES[split] / 100


def count_token_operations(stage: Stage) -> float:
    """Return the operations of a token's way forwards through the layers that are fine-tuned."""
    shape = find_trunk_shape(stage)
    layers, hidden = shape["layers"], shape["hidden"]
    products = 2 * (4 * hidden**2 + 2 * hidden * shape["intermediate"])
    return float(layers * (products + ELEMENT_OPERATIONS * hidden))


def find_trunk_shape(stage: Stage) -> Mapping[str, int]:
    """Return the shape of the layers that are fine-tuned; of an encoder that says nothing, that of
    the smallest preset.
    """
    encoder = stage.inputs.get("encoder") or stage.inputs.get("architecture")
    shape: dict[str, int] = stage.parameters.get("architecture", {})
    if not shape and encoder and (origin := find_origin(encoder)):
        shape = read_origin_shape(origin)
    if not shape and encoder and "preset" in encoder.parameters:
        shape = encoder.parameters["preset.architecture"] | {
            name: int(value)
            for name, value in encoder.parameters["settings"].items()
            if name in SHAPE
        }
    named = [stage.result.get("architecture"), stage.result.get("encoder")]
    places = [encoder.result.get("path")] if encoder else named
    for file in [Path(str(place)) / "config.json" for place in places if place and not shape]:
        about = json.loads(file.read_text()) if file.exists() else {}
        sizes = ("num_hidden_layers", "hidden_size", "intermediate_size")
        if all(name in about for name in sizes):
            shape = dict(zip(SHAPE, (about[name] for name in sizes), strict=True))
    if not shape and "teacher" in stage.inputs:
        return find_trunk_shape(stage.inputs["teacher"])
    return shape or TINY
