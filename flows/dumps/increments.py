"""What a model has seen, round by round, and how one more dump is added to it.

A round is one dump's way through the graph: its corpus without what earlier corpora have, its
shards with the first round's vocabulary, and the pre-training that went on with them; after a
contrastive adaptation, its corpus and the adaptation that went on with its titles. The
fingerprint of each stage contains those before it, so a model's fingerprint stands for its whole
history, and the history is read from the manifests alone: the earlier dumps may be gone.
"""

from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.settings import build_settings, format_value
from amazon_electra.flows.configuration.form import (
    Addition,
    AdditionParameters,
    Corpus,
    Increment,
    Pretraining,
    Shards,
)
from amazon_electra.flows.runner.logs import find_run_logger
from amazon_electra.flows.runner.stage_runner import StageMaker
from amazon_electra.flows.stages.continued_pretraining import (
    EarlierTraining,
    build_continued_stage,
    inherit_rates,
)
from amazon_electra.flows.stages.contrastive_adaptation import (
    ContrastiveAdaptation,
    build_contrastive_stage,
    has_titles,
)
from amazon_electra.flows.stages.corpus import Corpus as CorpusStage
from amazon_electra.flows.stages.corpus import build_corpus_stage
from amazon_electra.flows.stages.dump import list_dump
from amazon_electra.flows.stages.pretraining import ADAPTATIONS
from amazon_electra.flows.stages.shards import PackedShards, build_dev_stage, build_shards_stage
from amazon_electra.flows.stages.vocabulary import Vocabulary
from amazon_electra.flows.stages.vocabulary_fit import build_vocabulary_fit_stage
from amazon_electra.flows.store.stage import ExistingStage, Stage, dict_of
from amazon_electra.flows.store.store import Manifest, Store
from amazon_electra.model.pretraining.input.pairs import MIN_PAIRS
from amazon_electra.model.recipes import RECIPES

WARMUP = "0.1"
"""Share of the steps in which the learning rate of a round rises again from nothing."""


@dataclass(frozen=True)
class Round:
    """One dump's way through the graph."""

    dump: Stage
    corpus: Stage
    encoder: Stage
    shards: Stage | None = None
    """Of a pre-training; a contrastive adaptation reads the corpus."""
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
    vocabulary: Stage | None = None
    """Of the shards, where there are any."""
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
    vocabulary = origin = None
    while following:
        shards, read = None, following
        if following["stage"] != ContrastiveAdaptation.name:
            read = _read_input(store, following, "shards")
            shards = make_known_stage(read)
            vocabulary = make_known_stage(_read_input(store, read, "vocabulary"))
        corpus = _read_input(store, read, "corpus")
        dump = _read_input(store, corpus, "dump")
        made_of = make_known_stage(dump), make_known_stage(corpus)
        rounds.insert(0, Round(*made_of, make_known_stage(following), shards))
        if "origin" in following["inputs"]:
            origin = make_known_stage(_read_input(store, following, "origin"))
        following = _read_input(store, following, "base") if "base" in following["inputs"] else None
    return Base(tuple(rounds), vocabulary, origin)


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
        models = list(reversed(store.list_manifests()))
    else:
        models = list(store.find(champion if name == "champion" else name))
        models += [_read_input(store, m, "encoder") for m in models if m["stage"] == "report"]
    models = [m for m in models if m["stage"] in ADAPTATIONS]
    if name != "last" and len({m["fingerprint"] for m in models}) > 1:
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
        if model["stage"] in ADAPTATIONS:
            lineage = [earlier["fingerprint"] for _, earlier in store.trace_lineage(model, known)]
            if base in lineage:  # of two that ended in the same second the later of the chain
                found.append((model["finished"], len(lineage), name))
    return max(found)[-1]


def resolve_base(base: str, make: StageMaker) -> Base:
    """Return the model with this fingerprint and its history."""
    for name in ADAPTATIONS:
        if encoder := make.store.manifest(ExistingStage(name, 0, {}, known=base)):
            return read_history(make.store, encoder)
    raise UserError(
        f"no model {base} in {make.store.address}; `amazon-electra runs` lists them",
        "increment.base",
    )


def add_round(p: AdditionParameters, base: Base, make: StageMaker) -> Base:
    """Return the base with the dump added, or the base itself if there is nothing in the dump to
    train on.
    """
    first, vocabulary = base.rounds[0], base.vocabulary
    dump = make(list_dump(p.dump, make))
    corpus = make(build_corpus_stage(p, dump, make.store, [one.corpus for one in base.rounds]))
    made = make.store.manifest(corpus)
    if made and not made["result"]["splits"].get("pretrain"):
        find_run_logger().warning(
            "nothing in %s is new to the model %s", dump.result["name"], base.encoder.fingerprint
        )
        return base
    if vocabulary is None:
        if not has_titles(corpus, make.store, MIN_PAIRS):
            find_run_logger().warning(
                "%s has fewer than %d new reviews with a title that can be used; the encoder %s is "
                "kept",
                dump.result["name"],
                MIN_PAIRS,
                base.encoder.fingerprint,
            )
            return base
        encoder = make(build_contrastive_stage(p, corpus, base.encoder))
        return replace(base, rounds=(*base.rounds, Round(dump, corpus, encoder)))
    fit = make(build_vocabulary_fit_stage(corpus, vocabulary))
    shards = make(build_shards_stage(p, corpus, vocabulary))
    dev_shards = make(build_dev_stage(p, first.corpus, vocabulary))

    # How often the first round went through its own shards: replayed text does not count.
    packed = [one.shards for one in base.rounds if one.shards]
    own = 1 - first.encoder.parameters.get("replay_ratio", 0)
    epochs = own * first.encoder.result["tokens"] / packed[0].result["tokens"]
    labels = first.corpus if base.origin else None
    earlier = EarlierTraining(base.encoder, packed, epochs, dev=dev_shards, labels=labels)
    encoder = make(build_continued_stage(p, p.increment, shards, earlier))
    return replace(base, rounds=(*base.rounds, Round(dump, corpus, encoder, shards, fit)))


def inherit_settings(form: Addition, base: Base) -> AdditionParameters:
    """Return the settings of the base, unless the form says otherwise."""
    first, asked = base.rounds[0], form.increment
    withheld = first.corpus.result.get("withheld_files", [])
    if gone := [file for file in withheld if not Path(file).exists()]:
        raise UserError(
            f"restore {gone[0]}; its texts were withheld from the base, and must be again",
            "increment.base",
        )
    made = CorpusStage.read_config(first.corpus)
    scale = form.dump.stars_scale or made.stars_scale
    if base.vocabulary and first.shards:
        inherited = inherit_pretraining(asked, base, first.shards, base.vocabulary)
    else:
        inherited = inherit_contrast(asked, base)
    return build_settings(
        AdditionParameters,
        {
            "dump": form.dump.model_copy(update={"stars_scale": scale}),
            **inherited,
            "corpus": Corpus(
                split=made.split,
                split_by=made.split_by,
                title=made.title,
                near_duplicates=made.near_duplicates,
                withhold=withheld,
                languages=list(made.languages),
                workers=asked.workers,
            ),
            "increment": asked,
            "from_published": bool(base.origin),
            "finetuning": form.finetuning,
            "promotion": form.promotion,
            "engine": form.engine,
            "store": form.store,
        },
    )


def inherit_contrast(asked: Increment, base: Base) -> dict[str, Any]:
    """Return the form's sections of a training that continues a contrastive adaptation. That one
    knows no recipe; runs adapt by contrast with `published`.
    """
    if asked.steps:
        message = "the base was adapted by contrast, which counts passes; write `increment.epochs`"
        raise UserError(message, "increment.steps", asked.steps)
    if asked.replay_ratio != Increment().replay_ratio:
        message = "the base was adapted by contrast, which replays no earlier dump; leave it out"
        raise UserError(message, "increment.replay_ratio", asked.replay_ratio)
    before = dict_of(ContrastiveAdaptation.read_config(base.encoder))
    settings = {name: format_value(value) for name, value in before.items()} | asked.settings
    return {
        "recipe": "published",
        "pretraining": {
            "objective": "contrastive",
            "device": asked.device,
            "seed": settings.pop("seed", 0),
            "settings": settings,
        },
    }


def inherit_pretraining(
    asked: Increment, base: Base, shards: Stage, vocabulary: Stage
) -> dict[str, Any]:
    """Return the form's sections of a training that continues a pre-training on shards."""
    before = base.encoder.parameters
    shape = RECIPES[before["recipe"]].architecture.model_dump()
    if before.get("recipe.architecture", shape) != shape:
        raise UserError(
            f"the shape of the recipe {before['recipe']} has changed since that model was made",
            "increment.base",
        )
    inherited = dict(before["settings"])
    if base.origin:
        inherited = inherit_rates(inherited)
    return {
        "recipe": before["recipe"],
        "vocabulary": read_vocabulary(vocabulary),
        "shards": Shards(max_length=PackedShards.read_config(shards).max_length),
        "pretraining": Pretraining(
            objective=inherited.pop("objective", ""),
            steps=asked.steps,
            device=asked.device,
            settings={**inherited, "warmup": WARMUP, **asked.settings},
        ),
    }


def read_vocabulary(vocabulary: Stage) -> dict[str, Any]:
    """Return the form's section of the vocabulary that a base has; a published encoder's says
    nothing.
    """
    if vocabulary.name != Vocabulary.name:
        return {}
    config = Vocabulary.read_config(vocabulary)
    return {"size": config.size, "lower_case": config.lower_case}
