"""What a model has seen, round by round, and how one more dump is added to it.

A round is one dump's way through the graph: its corpus without what earlier corpora have, its
shards with the first round's vocabulary, and the pre-training that went on with them. The
fingerprint of each stage contains those before it, so a model's fingerprint stands for its whole
history, and the history is read from the manifests alone: the earlier dumps may be gone.
"""

from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from beam_jobs.core.errors import UserError
from beam_jobs.core.settings import build_settings
from flows.configuration.form import (
    Addition,
    AdditionParameters,
    Corpus,
    Pretraining,
    Shards,
)
from flows.runner.logs import find_run_logger
from flows.runner.stage_runner import StageMaker
from flows.stages.continued_pretraining import EarlierTraining, build_continued_stage, inherit_rates
from flows.stages.corpus import Corpus as CorpusStage
from flows.stages.corpus import build_corpus_stage
from flows.stages.dump import list_dump
from flows.stages.shards import PackedShards, build_dev_stage, build_shards_stage
from flows.stages.vocabulary import Vocabulary
from flows.stages.vocabulary_fit import build_vocabulary_fit_stage
from flows.store.stage import ExistingStage, Stage
from flows.store.store import Manifest, Store
from model.recipes import RECIPES

WARMUP = "0.1"
"""Share of the steps in which the learning rate of a round rises again from nothing."""


@dataclass(frozen=True)
class Round:
    """One dump's way through the graph."""

    dump: Stage
    corpus: Stage
    shards: Stage
    encoder: Stage
    fit: Stage | None = None
    """How well the first round's vocabulary fits; of a round made just now."""

    @property
    def stages(self) -> list[Stage]:
        """Return the stages in the order of the graph."""
        every = self.dump, self.corpus, self.fit, self.shards, self.encoder
        return [stage for stage in every if stage]


@dataclass(frozen=True)
class Base:
    """A model and everything it has seen, oldest round first."""

    rounds: tuple[Round, ...]
    vocabulary: Stage
    origin: Stage | None = None
    """The published encoder that the first round started from, if it did."""

    @property
    def encoder(self) -> Stage:
        """Return the newest model."""
        return self.rounds[-1].encoder


def read_history(store: Store, encoder: Manifest) -> Base:
    """Read the rounds from the manifests, from the newest back to the first."""
    rounds: list[Round] = []
    following: Manifest | None = encoder
    vocabulary: Manifest = {}
    origin: Stage | None = None
    while following:
        shards = _read_input(store, following, "shards")
        corpus = _read_input(store, shards, "corpus")
        vocabulary = _read_input(store, shards, "vocabulary")
        dump = _read_input(store, corpus, "dump")
        rounds.insert(0, Round(*map(make_known_stage, (dump, corpus, shards, following))))
        if "origin" in following["inputs"]:
            origin = make_known_stage(_read_input(store, following, "origin"))
        following = _read_input(store, following, "base") if "base" in following["inputs"] else None
    return Base(tuple(rounds), make_known_stage(vocabulary), origin)


def make_known_stage(manifest: Manifest) -> ExistingStage:
    """Return a complete stage as its manifest describes it."""
    return ExistingStage(
        manifest["stage"],
        manifest["version"],
        manifest["parameters"],
        result=manifest["result"],
        title=manifest["title"],
        known=manifest["fingerprint"],
    )


def _read_input(store: Store, manifest: Manifest, name: str) -> Manifest:
    """Return the manifest of an input; raise UserError if it is no longer in the store."""
    source = manifest["inputs"][name]
    found = store.read_manifest(source["stage"], source["fingerprint"])
    if found is None:
        raise UserError(
            f"{manifest['stage']} {manifest['fingerprint']} was made of "
            f"{source['stage']} {source['fingerprint']}, which is not in {store.address} any more",
            "increment.base",
        )
    return found


def find_base(name: str, new: Stage, store: Store, champion: str) -> str:
    """Return the fingerprint of the model that `increment.base` means for this dump.

    `champion` is the fingerprint of the registry's, or empty. A model that has seen the dump stands
    for the one before it, so that the same request means the same base again once it was fulfilled.
    """
    if name == "champion" and not champion:
        raise UserError(
            "the registry has no champion with an encoder (a TF-IDF model has "
            "none); name a model, or last",
            "increment.base",
        )
    if name == "last":
        models = [m for m in reversed(store.list_manifests()) if m["stage"] == "pretraining"]
    else:
        found = store.find(champion if name == "champion" else name)
        models = [m for m in found if m["stage"] == "pretraining"]
        models += [_read_input(store, m, "encoder") for m in found if m["stage"] == "report"]
        if len({m["fingerprint"] for m in models}) > 1:
            raise UserError(
                f"several models begin with {name}; write more of the fingerprint", "increment.base"
            )
    for model in models:
        try:
            rounds = read_history(store, model).rounds
        except UserError:  # what it was made of is gone; the newest of the others may do
            if name != "last":
                raise
            continue
        before = list(takewhile(lambda one: one.dump.fingerprint != new.fingerprint, rounds))
        if before:
            return before[-1].encoder.fingerprint
    why = (
        "its models began with this dump, or miss some of their inputs"
        if models
        else "`amazon-electra runs` lists them"
    )
    raise UserError(
        f"{name} is no model in {store.address} that this dump can be added to: {why}",
        "increment.base",
    )


def find_newest_model(store: Store, base: str) -> str:
    """Return the fingerprint of the newest model that goes back to this one, itself included."""
    known = {manifest["fingerprint"]: manifest for manifest in store.list_manifests()}
    found = [("", 0, base)]
    for name, model in known.items():
        if model["stage"] == "pretraining":
            lineage = [earlier["fingerprint"] for _, earlier in store.trace_lineage(model, known)]
            if base in lineage:  # of two that ended in the same second the later of the chain
                found.append((model["finished"], len(lineage), name))
    return max(found)[-1]


def resolve_base(base: str, make: StageMaker) -> Base:
    """Return the model with this fingerprint and its history."""
    encoder = make.store.manifest(ExistingStage("pretraining", 0, {}, known=base))
    if encoder is None:
        raise UserError(
            f"no model {base} in {make.store.address}; `amazon-electra runs` lists them",
            "increment.base",
        )
    return read_history(make.store, encoder)


def add_round(p: AdditionParameters, base: Base, make: StageMaker) -> Base:
    """Return the base with the dump added, or the base itself if nothing in the dump is new."""
    first, vocabulary = base.rounds[0], base.vocabulary
    dump = make(list_dump(p.dump, make))
    corpus = make(build_corpus_stage(p, dump, make.store, [one.corpus for one in base.rounds]))
    made = make.store.manifest(corpus)
    if made and not made["result"]["splits"].get("pretrain"):
        find_run_logger().warning(
            "nothing in %s is new to the model %s", dump.result["name"], base.encoder.fingerprint
        )
        return base
    fit = make(build_vocabulary_fit_stage(corpus, vocabulary))
    shards = make(build_shards_stage(p, corpus, vocabulary))
    dev_shards = make(build_dev_stage(p, first.corpus, vocabulary))

    # How often the first round went through its own shards: replayed text does not count.
    own = 1 - first.encoder.parameters.get("replay_ratio", 0)
    epochs = own * first.encoder.result["tokens"] / first.shards.result["tokens"]
    labels = first.corpus if base.origin else None
    earlier = EarlierTraining(
        base.encoder, [one.shards for one in base.rounds], epochs, dev=dev_shards, labels=labels
    )
    encoder = make(build_continued_stage(p, p.increment, shards, earlier))
    return replace(base, rounds=(*base.rounds, Round(dump, corpus, shards, encoder, fit)))


def inherit_settings(form: Addition, base: Base) -> AdditionParameters:
    """Return the settings of the base, unless the form says otherwise."""
    first, before, asked = base.rounds[0], base.encoder.parameters, form.increment
    shape = RECIPES[before["recipe"]].architecture.model_dump()
    if before.get("recipe.architecture", shape) != shape:
        raise UserError(
            f"the shape of the recipe {before['recipe']} has changed since that model was made",
            "increment.base",
        )
    withheld = first.corpus.result.get("withheld_files", [])
    if gone := [file for file in withheld if not Path(file).exists()]:
        raise UserError(
            f"put back {gone[0]}; its texts were withheld from the base, and must be again",
            "increment.base",
        )
    made = CorpusStage.read_config(first.corpus)
    scale = form.dump.stars_scale or made.stars_scale
    inherited = dict(before["settings"])
    if base.origin:
        inherited = inherit_rates(inherited)
    return build_settings(
        AdditionParameters,
        {
            "dump": form.dump.model_copy(update={"stars_scale": scale}),
            "recipe": before["recipe"],
            "corpus": Corpus(
                split=made.split,
                split_by=made.split_by,
                title=made.title,
                near_duplicates=made.near_duplicates,
                withhold=withheld,
                languages=list(made.languages),
                workers=asked.workers,
            ),
            "vocabulary": read_vocabulary(base.vocabulary),
            "shards": Shards(max_length=PackedShards.read_config(first.shards).max_length),
            "pretraining": Pretraining(
                objective=inherited.pop("objective", ""),
                steps=asked.steps,
                device=asked.device,
                settings={**inherited, "warmup": WARMUP, **asked.settings},
            ),
            "increment": asked,
            "from_published": bool(base.origin),
            "finetuning": form.finetuning,
            "promotion": form.promotion,
            "engine": form.engine,
            "store": form.store,
        },
    )


def read_vocabulary(vocabulary: Stage) -> dict[str, Any]:
    """Return the form's section of the vocabulary that a base has; a published encoder's says
    nothing.
    """
    if vocabulary.name != Vocabulary.name:
        return {}
    config = Vocabulary.read_config(vocabulary)
    return {"size": config.size, "lower_case": config.lower_case}
