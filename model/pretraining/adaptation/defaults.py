"""Chooses what a training that begins with loaded weights does by default: objective, settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from beam_jobs.core.errors import UserError
from model.config import Architecture
from model.encoders.config import (
    START,
    TRAINED_LENGTH,
    find_kind,
    read_architecture,
    read_config,
)
from model.encoders.masked_lm import load_masked_lm
from model.encoders.origin import ABOUT
from model.encoders.weights import has_mlm_head, read_weights
from model.recipes import (
    GENERATOR_DEPTH,
    MASK_PROBABILITIES,
    NEW_HEAD_SETTINGS,
    OLD_HEAD_SETTINGS,
)

TEN_PROBES = {"validate_every": "0"}
"""Where a probe is taken: a tenth of the steps lies between two."""


@dataclass(frozen=True)
class Start:
    """What a folder of start weights holds."""

    has_lm_head: bool
    is_discriminator: bool
    is_published: bool
    """Rather than written by model.pretrain, whose trainings go on with their recipe's rates."""
    keeps_types: bool
    """Whether its token types are others' work: classifiers of one text see type 0 alone, and what
    type 1 means for pairs is known already.
    """
    architecture: Architecture
    is_ours: bool
    """Whether our encoder holds it, rather than transformers' own module."""
    model_type: str

    @classmethod
    def read(cls, folder: Path) -> "Start":
        """Read a folder; UserError for what has no place in our encoder.

        Its weights say whether there is a head, not config.json, which may name one that is not
        there or that has a table of its own.
        """

        def make_error(text: str) -> UserError:
            return UserError(f"--start-from {folder}: {text}")

        config = read_config(folder, make_error)
        is_ours = find_kind(config, make_error) is not None
        has_lm_head = (
            has_mlm_head(read_weights(folder, config, make_error))
            if is_ours
            else not load_masked_lm(folder, make_error)[1]
        )
        is_generator = has_lm_head or "ElectraForMaskedLM" in (config.get("architectures") or [])
        return cls(
            has_lm_head,
            is_ours and config.get("model_type") == "electra" and not is_generator,
            (folder / ABOUT).is_file() or TRAINED_LENGTH not in config,
            START not in config,
            read_architecture(config, make_error),
            is_ours,
            config["model_type"],
        )


def choose_settings(
    folder: Path, given: Mapping[str, str], is_probed: bool = False, has_generator: bool = False
) -> dict[str, str]:
    """Return the settings that a folder of start weights asks for, as texts; `given` win, and a
    given learning_rate holds for the trunk too.

    A masked language model, and every encoder without a discriminator, goes on as a masked language
    model; a discriminator as an ELECTRA. Where an
    ELECTRA is made of a published discriminator without its generator (`has_generator` says
    whether one is loaded beside), or of another trunk, its first layers become the generator.
    """
    start = Start.read(folder)
    chosen = dict(TEN_PROBES) if is_probed else {}
    objective = given.get("objective", "electra" if start.is_discriminator else "mlm")
    _check_objective(folder, start, objective, given)
    if not start.is_discriminator and objective == "mlm":
        chosen["objective"] = objective
    if start.model_type in MASK_PROBABILITIES:
        chosen["mask_probability"] = str(MASK_PROBABILITIES[start.model_type])
    is_new_pair = objective == "electra" and not has_generator
    is_untrained_pair = start.is_published or not start.is_discriminator
    if is_new_pair and is_untrained_pair and "generator_multiplier" not in given:
        layers = max(1, round(start.architecture.layers * GENERATOR_DEPTH))
        chosen |= {"generator_multiplier": "1", "generator_layers": str(layers)}
    if start.is_published and objective != "mlm+nsp":
        is_bare = objective == "mlm" and not start.has_lm_head
        chosen |= NEW_HEAD_SETTINGS if is_bare else OLD_HEAD_SETTINGS
    if start.keeps_types and objective == "mlm":
        chosen["segment_probability"] = "0"
    if "learning_rate" in given:
        chosen.pop("trunk_learning_rate", None)
    return {name: text for name, text in chosen.items() if name not in given}


def _check_objective(folder: Path, start: Start, objective: str, given: Mapping[str, str]) -> None:
    """Raise UserError where an encoder in transformers' own module is to learn something else than
    masked tokens.
    """
    if start.is_ours:
        return
    told = f"--start-from {folder}: {start.model_type} is trained in transformers' own module"
    if objective != "mlm":
        raise UserError(f"objective={objective}: {told}, with objective=mlm only")
    if float(given.get("segment_probability", "0")) > 0:
        raise UserError(f"segment_probability: {told}, without segments; leave it out")


def describe_settings(folder: Path, chosen: Mapping[str, str]) -> str:
    """Return one line for the log, empty where nothing was chosen."""
    if not chosen:
        return ""
    words = ", ".join(f"{name}={text}" for name, text in chosen.items())
    return f"by what {folder} is: {words}; --set chooses others"
