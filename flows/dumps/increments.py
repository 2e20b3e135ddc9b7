"""What a model has seen, round by round, and how one more dump is added to it.

A round is one dump's way through the graph: its corpus without what earlier corpora have, its
shards with the first round's vocabulary, and the pre-training that went on with them. The
fingerprint of each stage contains those before it, so a model's fingerprint stands for its whole
history, and the history is read from the manifests alone: the earlier dumps may be gone.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from beam_jobs.core.errors import UserError
from flows.configuration.form import (
    Addition,
    AdditionParameters,
    Corpus,
    Pretraining,
    Shards,
    Vocabulary,
)
from flows.configuration.form_tools import validate_form
from flows.runner.logs import find_run_logger
from flows.runner.stage_runner import StageMaker
from flows.stages import continued_pretraining, corpus, dump, shards, vocabulary
from flows.store.store import ExistingStage, Manifest, Stage, Store
from model.presets import PRESETS


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

    def has_seen(self, dump: Stage) -> bool:
        """Return whether one of the rounds is this dump's."""
        return any(one.dump.fingerprint == dump.fingerprint for one in self.rounds)

    def find_base_before(self, dump: Stage) -> "Base | None":
        """Return the base as it was before this dump, or None if nothing came before it."""
        seen = [one.dump.fingerprint for one in self.rounds]
        rounds = self.rounds[: seen.index(dump.fingerprint)] if self.has_seen(dump) else self.rounds
        return replace(self, rounds=rounds) if rounds else None


def read_history(store: Store, encoder: Manifest) -> Base:
    """Read the rounds from the manifests, from the newest back to the first."""
    rounds: list[Round] = []
    following: Manifest | None = encoder
    words: Manifest = {}
    origin: Stage | None = None
    while following:
        sequences = _read_input(store, following, "shards")
        sentences = _read_input(store, sequences, "corpus")
        words = _read_input(store, sequences, "vocabulary")
        reviews = _read_input(store, sentences, "dump")
        rounds.insert(0, Round(*map(make_known_stage, (reviews, sentences, sequences, following))))
        if "origin" in following["inputs"]:
            origin = make_known_stage(_read_input(store, following, "origin"))
        following = _read_input(store, following, "base") if "base" in following["inputs"] else None
    return Base(tuple(rounds), make_known_stage(words), origin)


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
            f"increment.base: {manifest['stage']} {manifest['fingerprint']} was made of "
            f"{source['stage']} {source['fingerprint']}, which is not in {store.address} any more"
        )
    return found


def find_base(name: str, new: Stage, store: Store, champion: str) -> str:
    """Return the fingerprint of the model that `increment.base` means for this dump.

    `champion` is the fingerprint of the registry's, or empty. A model that has seen the dump stands
    for the one before it, so that the same request means the same base again once it was fulfilled.
    """
    if name == "champion" and not champion:
        raise UserError(
            "increment.base: there is no champion in the registry; name a model, or last"
        )
    if name == "last":
        models = [m for m in reversed(store.list_manifests()) if m["stage"] == "pretraining"]
    else:
        found = store.find(champion if name == "champion" else name)
        models = [find_encoder(store, m) for m in found if m["stage"] in ("pretraining", "report")]
        if len({m["fingerprint"] for m in models}) > 1:
            raise UserError(
                f"increment.base: several models begin with {name}; write more of the fingerprint"
            )
    for model in models:
        try:
            base = read_history(store, model).find_base_before(new)
        except UserError:  # what it was made of is gone; the newest of the others may do
            if name != "last":
                raise
            continue
        if base:
            return base.encoder.fingerprint
    why = (
        "what there is began with this dump, or is not whole"
        if models
        else "`amazon-electra runs` lists them"
    )
    raise UserError(
        f"increment.base: {name} is no model in {store.address} that this dump can be added to: "
        f"{why}"
    )


def find_encoder(store: Store, found: Manifest) -> Manifest:
    """Return the manifest of the pre-training behind a pre-training or a report."""
    return found if found["stage"] == "pretraining" else _read_input(store, found, "encoder")


def find_newest_model(store: Store, base: str) -> str:
    """Return the fingerprint of the newest model that goes back to this one, itself included."""
    made = store.list_manifests()
    known = {manifest["fingerprint"]: manifest for manifest in made}
    for model in reversed(made):
        if model["stage"] == "pretraining" and any(
            earlier["fingerprint"] == base for _, earlier in store.trace_lineage(model, known)
        ):
            return str(model["fingerprint"])
    return base


def resolve_base(base: str, make: StageMaker) -> Base:
    """Return the model with this fingerprint and its history."""
    encoder = make.store.manifest(ExistingStage("pretraining", 0, {}, known=base))
    if encoder is None:
        raise UserError(
            f"increment.base: no model {base} in {make.store.address}; "
            "`amazon-electra runs` lists them"
        )
    return read_history(make.store, encoder)


def add_round(p: AdditionParameters, base: Base, make: StageMaker) -> Base:
    """Return the base with the dump added, or the base itself if nothing in the dump is new."""
    reviews = make(dump.list_dump(p.dump, make))
    earlier = [one.corpus for one in base.rounds]
    sentences = make(corpus.build_corpus_stage(p, reviews, make.store, earlier))
    if has_nothing_new(make.store, sentences):
        find_run_logger().warning(
            "nothing in %s is new to the model %s", reviews.result["name"], base.encoder.fingerprint
        )
        return base
    fit = make(vocabulary.build_vocabulary_fit_stage(p.increment, sentences, base.vocabulary))
    sequences = make(shards.build_shards_stage(p, sentences, base.vocabulary))
    training = continued_pretraining.EarlierTraining(
        base.encoder,
        [one.shards for one in base.rounds],
        count_first_epochs(base),
        dev=make(shards.build_dev_stage(p, base.rounds[0].corpus, base.vocabulary)),
        labels=base.rounds[0].corpus if base.origin else None,
    )
    encoder = make(continued_pretraining.build_continued_stage(p, p.increment, sequences, training))
    added = Round(reviews, sentences, sequences, encoder, fit)
    return replace(base, rounds=(*base.rounds, added))


def has_nothing_new(store: Store, sentences: Stage) -> bool:
    """Return whether no text of the corpus goes to pre-training."""
    made = store.manifest(sentences)
    return made is not None and not made["result"]["splits"].get("pretrain")


def count_first_epochs(base: Base) -> float:
    """Return how often the first round went through its shards, of whatever lengths; what it
    replayed of other text is none of them.
    """
    first = base.rounds[0]
    own = 1 - first.encoder.parameters.get("replay_ratio", 0)
    return own * first.encoder.result["tokens"] / first.shards.result["tokens"]


def inherit_settings(form: Addition, base: Base) -> AdditionParameters:
    """Return the settings of the base, unless the form says otherwise."""
    first, before, asked = base.rounds[0], base.encoder.parameters, form.increment
    shape = PRESETS[before["preset"]].architecture.model_dump()
    if before.get("preset.architecture", shape) != shape:
        raise UserError(
            f"increment.base: the preset {before['preset']} has another shape by now than that "
            "model"
        )
    withheld = first.corpus.result.get("withheld_files", [])
    if gone := [file for file in withheld if not Path(file).exists()]:
        raise UserError(
            f"increment.base: put back {gone[0]}; its texts were withheld from the base, and must "
            "be again"
        )
    made = first.corpus.parameters
    if made.get("near_duplicates"):
        raise UserError(
            "increment.base: its corpus is without near duplicates (corpus.near_duplicates), and "
            "keeps nothing to tell by whether a new text is one; run all dumps anew"
        )
    inherited = dict(before["settings"])
    if base.origin:
        inherited = continued_pretraining.inherit_rates(inherited)
    return validate_form(
        AdditionParameters,
        {
            "dump": form.dump,
            "preset": before["preset"],
            "corpus": Corpus(
                split=made["split"],
                seed=made["seed"],
                withhold=withheld,
                languages=made.get("languages", []),
                withhold_own="withhold_own" not in made,
                workers=asked.workers,
            ),
            "vocabulary": Vocabulary(
                **{
                    name: value
                    for name, value in base.vocabulary.parameters.items()
                    if name in ("size", "lower_case")
                }
            ),
            "shards": Shards(max_length=first.shards.parameters["max_length"]),
            "pretraining": Pretraining(
                steps=asked.steps,
                device=asked.device,
                seed=asked.seed,
                settings={**inherited, "warmup": str(asked.warmup), **asked.settings},
            ),
            "increment": asked,
            "from_published": bool(base.origin),
            "finetuning": form.finetuning,
            "promotion": form.promotion,
            "engine": form.engine,
            "store": form.store,
        },
    )
