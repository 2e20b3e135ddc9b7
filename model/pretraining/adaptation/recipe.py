"""Chooses what a training that begins with loaded weights does by default: objective, settings.

Imports no torch.
"""

from collections.abc import Mapping
from pathlib import Path

from beam_jobs.job.errors import UserError
from model.published.architecture import read_architecture, read_config

NEW_HEAD_SETTINGS: Mapping[str, str] = {
    "learning_rate": "2e-3",
    "warmup": "0.1",
    "head_steps": "0.4",
    "trunk_learning_rate": "1e-4",
}
"""Of a bare trunk, which gets a new head: the head learns alone first, and fast. Measured with
MiniLM: docs/results.md, "Starting from a published encoder".
"""
OLD_HEAD_SETTINGS: Mapping[str, str] = {
    "learning_rate": "5e-5",
    "warmup": "0.1",
}
"""Of a masked language model with its head (Sun et al. 2019, arXiv 1905.05583: 5e-5 and a tenth);
not measured here.
"""
GENERATOR_DEPTH = 1 / 3
"""Of a generator that is made of a loaded trunk, as a share of its layers: those nearest to the
embeddings, all widths alike. ELECTRA's generators have a quarter to a half of the discriminator's
width (Clark et al. 2020, section 3.2).
"""
HEADS = ("ForMaskedLM", "ForPreTraining")
TEN_PROBES = {"validate_every": "0"}
"""Where a probe is taken: a tenth of the steps lies between two."""


def choose_settings(
    folder: Path, given: Mapping[str, str], is_probed: bool = False
) -> dict[str, str]:
    """Return the settings that a folder of start weights asks for, as texts; `given` win. Learning
    rates go together: who gives one of them gets none of the others.

    A masked language model, and every encoder of BERT's family without a discriminator, goes on as
    a masked language model; a discriminator, or google's checkpoint, as the preset says. Where such
    an encoder is to become an ELECTRA, its first layers become the generator.
    """
    chosen = dict(TEN_PROBES) if is_probed else {}
    if (folder / "config.json").is_file():
        chosen |= _choose_by_kind(folder, given)
    return {name: text for name, text in chosen.items() if name not in given}


def _choose_by_kind(folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return what the network asks for that the folder's config.json names."""

    def make_error(text: str) -> UserError:
        return UserError(f"--start-from {folder}: {text}")

    config = read_config(folder, make_error)
    heads = [str(head) for head in config.get("architectures") or []]
    is_discriminator = config.get("model_type") == "electra" and "ElectraForMaskedLM" not in heads
    objective = given.get("objective", "electra" if is_discriminator else "mlm")
    has_own_generator = objective == "electra" and "generator_multiplier" in given
    if is_discriminator or has_own_generator or objective == "mlm+nsp":
        return {}
    if objective == "electra":
        layers = max(1, round(read_architecture(config, make_error).layers * GENERATOR_DEPTH))
        return {"generator_multiplier": "1", "generator_layers": str(layers)}
    if config.get("model_type") == "electra" or set(NEW_HEAD_SETTINGS) & set(given):
        return {"objective": "mlm"}
    has_head = any(head.endswith(HEADS) for head in heads)
    return {"objective": "mlm", **(OLD_HEAD_SETTINGS if has_head else NEW_HEAD_SETTINGS)}


def describe_settings(folder: Path, chosen: Mapping[str, str]) -> str:
    """Return one line for the log, empty where nothing was chosen."""
    if not chosen:
        return ""
    words = ", ".join(f"{name}={text}" for name, text in chosen.items())
    return f"by what {folder} is: {words}; --set chooses others"
