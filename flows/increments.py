"""What a model has seen, round by round, and how one more dump is added to it.

A round is one dump's way through the graph: its corpus without what earlier corpora have, its shards with the first
round's vocabulary, and the pre-training that went on with them. The fingerprint of each stage contains those before it,
so a model's fingerprint stands for its whole history, and the history is read from the manifests alone: the earlier
dumps may be gone.

A model may also be named before it is made, by the ticket of a promised addition. Whoever builds on it makes what is
missing, or waits for the run that is at it. So dumps that arrive together chain in the order in which they were
promised, whatever becomes of the single runs.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beam_jobs.command import UserMistake
from flows.completion import Maker
from flows.parameters import Addition, Corpus, Parameters, Pretraining, Shards, Vocabulary
from flows.presentation import run_logger
from flows.processes import JobFailed
from flows.stages import corpus, pretraining, shards, vocabulary
from flows.store import Known, Manifest, Stage, Store, read_manifest
from model.json_file import write_json


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
        """In the order of the graph."""
        return [stage for stage in (self.dump, self.corpus, self.fit, self.shards, self.encoder) if stage]


@dataclass(frozen=True)
class Base:
    """A model and everything it has seen, oldest round first."""

    rounds: tuple[Round, ...]
    vocabulary: Stage

    @property
    def encoder(self) -> Stage:
        return self.rounds[-1].encoder

    def has_seen(self, dump: Stage) -> bool:
        return any(one.dump.fingerprint == dump.fingerprint for one in self.rounds)

    def before(self, dump: Stage) -> "Base | None":
        """The base as it was before this dump; None where nothing came before it."""
        seen = [one.dump.fingerprint for one in self.rounds]
        rounds = self.rounds[: seen.index(dump.fingerprint)] if self.has_seen(dump) else self.rounds
        return Base(rounds, self.vocabulary) if rounds else None


def history(store: Store, encoder: Manifest) -> Base:
    """Read from the manifests, from the newest round back to the first."""
    rounds: list[Round] = []
    following: Manifest | None = encoder
    words: Manifest = {}
    while following:
        sequences = _made_of(store, following, "shards")
        sentences = _made_of(store, sequences, "corpus")
        words, reviews = _made_of(store, sequences, "vocabulary"), _made_of(store, sentences, "dump")
        rounds.insert(0, Round(*map(known, (reviews, sentences, sequences, following))))
        following = _made_of(store, following, "base") if "base" in following["inputs"] else None
    return Base(tuple(rounds), known(words))


def known(manifest: Manifest) -> Known:
    """A complete stage as its manifest describes it."""
    return Known(
        manifest["stage"],
        manifest["version"],
        manifest["parameters"],
        result=manifest["result"],
        title=manifest["title"],
        known=manifest["fingerprint"],
    )


def _made_of(store: Store, manifest: Manifest, name: str) -> Manifest:
    source = manifest["inputs"][name]
    found = read_manifest(store.root / source["stage"] / source["fingerprint"])
    if found is None:
        raise UserMistake(
            f"increment.base: {manifest['stage']} {manifest['fingerprint']} was made of {source['stage']} "
            f"{source['fingerprint']}, which is not in {store.root} any more"
        )
    return found


def named(name: str, new: Stage, store: Store, champion: str) -> str:
    """The model that `increment.base` means for this dump; `champion` is the fingerprint of the registry's, or empty.

    A model that has seen the dump stands for the one before it, so that the same request means the same base again
    once it was fulfilled.
    """
    if promised(store, name):
        return name
    if name == "champion" and not champion:
        raise UserMistake("increment.base: there is no champion in the registry; name a model, or last")
    if name == "last":
        models = [m for m in reversed(store.manifests()) if m["stage"] == "pretraining"]
    else:
        found = store.find(champion if name == "champion" else name)
        models = [model_of(store, m) for m in found if m["stage"] in ("pretraining", "report")]
        if len({m["fingerprint"] for m in models}) > 1:
            raise UserMistake(f"increment.base: several models begin with {name}; write more of the fingerprint")
    for model in models:
        try:
            base = history(store, model).before(new)
        except UserMistake:  # what it was made of is gone; the newest of the others will do, if any will
            if name != "last":
                raise
            continue
        if base:
            return base.encoder.fingerprint
    why = "what there is began with this dump, or is not whole" if models else "`amazon-electra runs` lists them"
    raise UserMistake(f"increment.base: {name} is no model in {store.root} that this dump can be added to: {why}")


def model_of(store: Store, found: Manifest) -> Manifest:
    return found if found["stage"] == "pretraining" else _made_of(store, found, "encoder")


def promise(store: Store, form: Addition) -> str:
    """Leaves a note of an addition to be made; what it returns may be named as the base of the next one."""
    ticket = ticket_of(form)
    if not promised(store, ticket):
        _note(store, ticket).parent.mkdir(parents=True, exist_ok=True)
        write_json(_note(store, ticket), {"form": form.model_dump(mode="json", exclude={"store"})})
    return ticket


def promised(store: Store, ticket: str) -> dict[str, Any]:
    """The note of an addition; empty where nobody left one."""
    note = _note(store, ticket)
    return json.loads(note.read_text()) if ticket.isalnum() and note.exists() else {}


def kept(store: Store, form: Addition, made: Base) -> None:
    """Notes what came of a promise; from then on the dump itself is not needed any more."""
    ticket = ticket_of(form)
    if (note := promised(store, ticket)) and store.manifest(made.encoder):
        write_json(_note(store, ticket), {**note, "made": made.encoder.fingerprint})


def ticket_of(form: Addition) -> str:
    """Of what decides the model; 16 digits and a letter no fingerprint has."""
    asked = form.model_dump_json(include={"dump", "increment"})
    return "t" + hashlib.sha256(asked.encode()).hexdigest()[:16]


def _note(store: Store, ticket: str) -> Path:
    return store.root / "additions" / f"{ticket}.json"


def resolve(base: str, make: Maker) -> Base:
    """The model with this fingerprint, or of this ticket: then it is made now, unless that was done.

    A promised dump that cannot be used is left out, as it was when its own run failed: it must not keep those after it
    from being added. One whose job fails is not tried again here; its own run may be started again.
    """
    if note := promised(make.store, base):
        if "made" in note:
            return resolve(note["made"], make)
        form = Addition.model_validate({**note["form"], "store": str(make.store.root)})
        before = resolve(form.increment.base, make)
        if "left_out" in note:
            return before
        try:
            return grown(form, before, make)
        except UserMistake as unusable:
            run_logger().warning("left out %s: %s", " ".join(form.dump.paths), unusable)
        except JobFailed as failure:
            if failure.transient:
                raise
            run_logger().warning("left out %s: %s", " ".join(form.dump.paths), failure)
            write_json(_note(make.store, base), {**note, "left_out": str(failure)})
        return before
    encoder = make.store.manifest(Known("pretraining", 0, {}, known=base))
    if encoder is None:
        raise UserMistake(f"increment.base: no model {base} in {make.store.root}; `amazon-electra runs` lists them")
    return history(make.store, encoder)


def grown(form: Addition, base: Base, make: Maker) -> Base:
    """The base with the dump added, or the base itself where nothing in the dump is new."""
    p, increment = inherited(form, base), form.increment
    reviews = make(make.dump(p))
    sentences = make(corpus.stage(p, reviews, make.store, [one.corpus for one in base.rounds]))
    if has_nothing_new(make.store, sentences):
        run_logger().warning("nothing in %s is new to the model %s", reviews.result["name"], base.encoder.fingerprint)
        kept(make.store, form, base)
        return base
    fit = make(vocabulary.fit_stage(increment, sentences, base.vocabulary))
    sequences = make(shards.stage(p, sentences, base.vocabulary))
    earlier = pretraining.Earlier(base.encoder, [one.shards for one in base.rounds], epochs_of_the_first(base))
    encoder = make(pretraining.continued(p, increment, sequences, earlier))
    made = Base((*base.rounds, Round(reviews, sentences, sequences, encoder, fit)), base.vocabulary)
    kept(make.store, form, made)
    return made


def has_nothing_new(store: Store, sentences: Stage) -> bool:
    made = store.manifest(sentences)
    return made is not None and not made["result"]["splits"].get("pretrain")


def epochs_of_the_first(base: Base) -> float:
    """How often the first round went through its shards."""
    first = base.rounds[0]
    return first.encoder.result["sequences"] / first.shards.result["sequences"]


def inherited(form: Addition, base: Base) -> Parameters:
    """The settings of the base, where the form does not say otherwise."""
    first, before = base.rounds[0], base.encoder.parameters
    if before["preset.architecture"] != pretraining.shape_of(before["preset"]):
        raise UserMistake(f"increment.base: the preset {before['preset']} has another shape by now than that model")
    withheld = first.corpus.result.get("withheld_files", [])
    if gone := [file for file in withheld if not Path(file).exists()]:
        raise UserMistake(
            f"increment.base: put back {gone[0]}; its texts were withheld from the base, and must be again"
        )
    if first.corpus.parameters.get("near_duplicates"):
        raise UserMistake(
            "increment.base: its corpus is without near duplicates (corpus.near_duplicates), and keeps nothing to tell "
            "by whether a new text is one; run all dumps anew"
        )
    asked = form.increment
    return Parameters(
        dump=form.dump,
        preset=before["preset"],
        corpus=Corpus(
            split=first.corpus.parameters["split"],
            seed=first.corpus.parameters["seed"],
            withhold=withheld,
            languages=first.corpus.parameters.get("languages", []),
            workers=asked.workers,
        ),
        vocabulary=Vocabulary(**base.vocabulary.parameters),
        shards=Shards(max_length=first.shards.parameters["max_length"]),
        pretraining=Pretraining(
            steps=asked.steps,
            device=asked.device,
            seed=asked.seed,
            settings={**before["settings"], "warmup": str(asked.warmup), **asked.settings},
        ),
        finetuning=form.finetuning,
        promotion=form.promotion,
        store=form.store,
    )
