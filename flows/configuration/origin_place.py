"""The form's field for the place of a published encoder, and the settings that fit beside one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from flows.configuration.addresses import Address
from model.encoders.places import FORMS, find_kind, parse_place

ELECTRA = "electra"
SHAPE = (
    "layers",
    "hidden",
    "intermediate",
    "heads",
    "embedding",
    "max_positions",
    "type_vocabulary_size",
)
"""Fields of Architecture that the published encoder's own config.json says."""


def _check_place(place: str) -> str:
    if place and find_kind(place) is None:
        raise ValueError(f"{place} is no place of a published encoder: write {FORMS}")
    return place


Place = Annotated[Address, AfterValidator(_check_place)]


def name_origin(place: str) -> str:
    """Return what reports call the encoder of a place: the last part of its name."""
    kind = find_kind(place)
    if kind in (None, "folder"):
        return Path(place).expanduser().resolve().name
    return parse_place(kind, place)["name"].rpartition("/")[2]


def _find_idle_replay(form: Any) -> Iterator[str]:
    """Yield what the form says of general text that no pre-training can do."""
    chosen = form.pretraining
    default = type(chosen).model_fields["replay_ratio"].default
    if not chosen.general_text and chosen.replay_ratio != default:
        yield (
            f"pretraining.replay_ratio={chosen.replay_ratio}: a share of pretraining.general_text, "
            "which is empty"
        )


def find_contradictions(form: Any) -> Iterator[str]:
    """Yield what a run's form asks that makes no sense with, or without, a published start."""
    place, words = form.pretraining.start_from, form.vocabulary
    generator = form.pretraining.start_generator_from
    yield from _find_idle_replay(form)
    if not place:
        if generator:
            yield (
                f"pretraining.start_generator_from={generator}: belongs to the discriminator in "
                "pretraining.start_from, which is empty"
            )
        if words.source == "keep":
            yield "vocabulary.source=keep: keeps that of pretraining.start_from, which is empty"
        if "origin" in form.finetuning.arms:
            yield (
                "finetuning.arms: origin is the encoder of pretraining.start_from, which is empty"
            )
        return
    objective = form.pretraining.settings.get("objective", ELECTRA)
    if generator and objective != ELECTRA:
        field = f"pretraining.start_generator_from={generator}"
        yield f"{field}: objective={objective} has no generator"
    for name in SHAPE:
        if name in form.pretraining.settings:
            yield (
                f"pretraining.settings: {name}: the shape is that of {place} "
                "(pretraining.start_from); leave it out"
            )
    if words.source == "new":
        return
    for name in ("size", "lower_case"):
        if getattr(words, name) != type(words).model_fields[name].default:
            yield (
                f"vocabulary.{name}: the vocabulary is that of {place} (pretraining.start_from); "
                "leave it out, or write vocabulary.source=new"
            )
