"""What a model has seen, round by round, and how one more dump is added to it.

A round is one dump's way through the graph: its corpus without what earlier corpora have, its
shards with the first round's vocabulary, and the pre-training that went on with them; after a
contrastive adaptation, its corpus and the adaptation that went on with its titles. Where nothing in
a dump is worth training on, the encoder is kept, and the dump gives its labels alone.

A model that a dump is added to is known by a fingerprint: of its encoder, of the joined labels of a
round that kept the encoder, or of the report of a run whose encoder is as published. Each contains
the stages before it, so it stands for the whole history, which is read from the manifests alone:
the earlier dumps may be gone.
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
from amazon_electra.flows.stages.evaluation import Evaluation
from amazon_electra.flows.stages.joined_corpus import JoinedCorpus, make_joined_corpus
from amazon_electra.flows.stages.origin import Origin
from amazon_electra.flows.stages.pretraining import ADAPTATIONS
from amazon_electra.flows.stages.report import Report
from amazon_electra.flows.stages.shards import (
    PackedShards,
    build_dev_stage,
    build_shards_stage,
    choose_sequence_length,
)
from amazon_electra.flows.stages.vocabulary import Vocabulary
from amazon_electra.flows.stages.vocabulary_fit import build_vocabulary_fit_stage
from amazon_electra.flows.store.stage import ExistingStage, Resources, Stage, dict_of
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
    is_kept: bool = False
    """Whether the encoder is that of the round before, or as published."""

    @property
    def stages(self) -> list[Stage]:
        """Return the stages in the order of the graph."""
        trained = None if self.is_kept else self.encoder
        every = self.dump, self.corpus, self.fit, self.shards, trained
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


def read_history(store: Store, model: Manifest) -> Base:
    """Read the rounds of a model (`find_model`) from the manifests, from the newest back to the
    first.
    """
    trained: dict[str, Round] = {}
    vocabulary = origin = None
    encoder = model if model["stage"] in ADAPTATIONS else _read_input(store, model, "encoder")
    following: Manifest | None = encoder
    while following and following["stage"] in ADAPTATIONS:
        shards, read = None, following
        if following["stage"] != ContrastiveAdaptation.name:
            read = _read_input(store, following, "shards")
            shards = make_known_stage(read)
            vocabulary = make_known_stage(_read_input(store, read, "vocabulary"))
        corpus = _read_input(store, read, "corpus")
        dump = make_known_stage(_read_input(store, corpus, "dump"))
        one = Round(dump, make_known_stage(corpus), make_known_stage(following), shards)
        trained = {corpus["fingerprint"]: one} | trained
        if "origin" in following["inputs"]:
            origin = make_known_stage(_read_input(store, following, "origin"))
        following = _read_input(store, following, "base") if "base" in following["inputs"] else None
    if encoder["stage"] not in ADAPTATIONS:
        origin = make_known_stage(encoder)
    if model["stage"] == JoinedCorpus.name:
        newest: Manifest | None = _read_input(store, model, "corpus")
    elif model["stage"] == Report.name:
        newest = _read_data(store, model)
    else:
        newest = store.manifest([*trained.values()][-1].corpus)
    corpora: list[Manifest] = []
    while newest:
        corpora.insert(0, newest)
        newest = _read_input(store, newest, "earlier") if "earlier" in newest["inputs"] else None
    rounds: list[Round] = []
    for corpus in corpora:
        kept = rounds[-1].encoder if rounds else make_known_stage(encoder)
        dump = make_known_stage(_read_input(store, corpus, "dump"))
        known = Round(dump, make_known_stage(corpus), kept, is_kept=True)
        rounds.append(trained.get(corpus["fingerprint"], known))
    return Base(tuple(rounds), vocabulary, origin)


def find_model(store: Store, made: Manifest) -> Manifest | None:
    """Return the model that a stage stands for; None for one that stands for none."""
    if made["stage"] in ADAPTATIONS:
        return made
    if made["stage"] == JoinedCorpus.name:
        return made if "encoder" in made["inputs"] else None
    if made["stage"] != Report.name or "encoder" not in made["inputs"]:
        return None
    encoder, data = _read_input(store, made, "encoder"), _read_data(store, made)
    if data and data["stage"] == JoinedCorpus.name and "encoder" in data["inputs"]:
        return data
    if encoder["stage"] in ADAPTATIONS:
        return encoder
    return made if encoder["stage"] == Origin.name and data else None


def _read_data(store: Store, report: Manifest) -> Manifest | None:
    """Return the corpus, or the joined labels, that a report is of; None where it is of neither."""
    names = [n for n, one in report["inputs"].items() if one["stage"] == Evaluation.name]
    if not names:
        return None
    data = _read_input(store, _read_input(store, report, names[0]), "data")
    return data if data["stage"] in (CorpusStage.name, JoinedCorpus.name) else None


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
        named = list(reversed(store.list_manifests()))
    else:
        named = list(store.find(champion if name == "champion" else name))
    models: dict[str, Manifest] = {}
    for made in named:
        try:
            model = find_model(store, made)
        except UserError:  # what it was made of is gone; the newest of the others may do
            if name != "last":
                raise
            continue
        models |= {model["fingerprint"]: model} if model else {}
    if name != "last" and len(models) > 1:
        raise UserError(
            f"several models begin with {name}; write more of the fingerprint", "increment.base"
        )
    for model in models.values():
        try:
            rounds = read_history(store, model).rounds
        except UserError:
            if name != "last":
                raise
            continue
        before = list(takewhile(lambda one: one.dump.fingerprint != new.fingerprint, rounds))
        if len(before) == len(rounds):
            return str(model["fingerprint"])
        if before:
            return _find_model_of(before[-1], store)
    why = (
        "its models began with this dump, or miss some of their inputs"
        if models
        else "`amazon-electra runs` lists them"
    )
    raise UserError(
        f"{name} is no model in {store.address} that this dump can be added to: {why}",
        "increment.base",
    )


def _find_model_of(last: Round, store: Store) -> str:
    """Return the fingerprint of the model whose newest round this is."""
    wanted = {"corpus": last.corpus.fingerprint, "encoder": last.encoder.fingerprint}
    for made in store.list_manifests() if last.is_kept else ():
        inputs = {name: one["fingerprint"] for name, one in made["inputs"].items()}
        if made["stage"] == JoinedCorpus.name and wanted.items() <= inputs.items():
            return str(made["fingerprint"])
        if made["stage"] == Report.name and inputs.get("encoder") == wanted["encoder"]:
            data = _read_data(store, made)
            if data and data["fingerprint"] == wanted["corpus"]:
                return str(made["fingerprint"])
    return last.encoder.fingerprint


def find_newest_model(store: Store, base: str) -> str:
    """Return the fingerprint of the newest model that goes back to this one, itself included."""
    known = {manifest["fingerprint"]: manifest for manifest in store.list_manifests()}
    wanted = {base}
    if known[base]["stage"] not in ADAPTATIONS:  # what goes on from it has its corpus and encoder
        last = read_history(store, known[base]).rounds[-1]
        wanted = {last.corpus.fingerprint, last.encoder.fingerprint}
    found = [("", 0, base)]
    for made in known.values():
        try:
            model = find_model(store, made)
        except UserError:
            continue
        if model:
            lineage = {m["fingerprint"]: m for _, m in store.trace_lineage(model, known)}
            if wanted <= lineage.keys():  # of two that ended in the same second that of more dumps
                dumps = sum(m["stage"] == CorpusStage.name for m in lineage.values())
                found.append((model["finished"], dumps, model["fingerprint"]))
    return max(found)[-1]


def resolve_base(base: str, make: StageMaker) -> Base:
    """Return the model with this fingerprint and its history."""
    for name in (*ADAPTATIONS, JoinedCorpus.name, Report.name):
        if made := make.store.read_manifest(name, base):
            return read_history(make.store, made)
    raise UserError(
        f"no model {base} in {make.store.address}; `amazon-electra runs` lists them",
        "increment.base",
    )


def explain_kept_encoder(base: Base, corpus: Stage, store: Store) -> str:
    """Return why a dump trains the encoder of the base no further, as far as its corpus, once it is
    made, shows; empty where it does.
    """
    if base.encoder.name not in ADAPTATIONS:
        return "the base has the encoder as published"
    if base.vocabulary is None and not has_titles(corpus, store, MIN_PAIRS):
        return f"it has fewer than {MIN_PAIRS} new reviews with a title that can be used"
    made = store.manifest(corpus)
    if made and not made["result"]["splits"].get("pretrain"):
        return "it has no new review to train on"
    return ""


def join_labels(base: Base, added: Round, make: StageMaker) -> Stage:
    """Make the joined labels of a base and of the dump that is added to it."""
    rounds = (*base.rounds, added)
    return make_joined_corpus(
        make,
        [one.corpus for one in rounds],
        [str(one.dump.result["name"]) for one in rounds],
        [one.encoder if one.is_kept else None for one in rounds],
    )


def add_round(
    p: AdditionParameters, base: Base, dump: Stage, corpus: Stage, make: StageMaker
) -> Base:
    """Return the base with the dump and its corpus added, after its encoder was trained further."""
    first, vocabulary = base.rounds[0], base.vocabulary
    if vocabulary is None:
        encoder = make(build_contrastive_stage(p.pretraining, corpus, base.encoder))
        return replace(base, rounds=(*base.rounds, Round(dump, corpus, encoder)))
    fit = make(build_vocabulary_fit_stage(corpus, vocabulary))
    length = choose_sequence_length(p.shards, p.recipe, None, make.store)
    engine = Resources(engine=p.engine, workers=p.corpus.workers)
    shards = make(build_shards_stage(length, corpus, vocabulary, engine))
    dev_shards = make(build_dev_stage(length, first.corpus, vocabulary))

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
    if base.encoder.name not in ADAPTATIONS:
        inherited = {"recipe": "published"}
    elif base.vocabulary and first.shards:
        inherited = inherit_pretraining(asked, base, first.shards, base.vocabulary)
    else:
        inherited = inherit_contrast(asked, base)
    return build_settings(
        AdditionParameters,
        {
            "dump": form.dump.model_copy(
                update={"stars_scale": scale, "fold_labels": made.fold_labels}
            ),
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
