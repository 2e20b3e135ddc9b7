"""Decides whether a checkpoint belongs to a run and names what differs if it does not."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from beam_jobs.job.errors import UserError
from model.presets import Preset
from model.pretraining.adaptation.config import AdaptationConfig
from model.pretraining.adaptation.probe import Probe
from model.pretraining.input.sequences import Shards

# These change what is written or how the work is cut up, not what is learned.
FREE_SETTINGS = {
    "log_every",
    "validate_every",
    "checkpoint_every",
    "keep_checkpoints",
    "device_batch",
    "validate_sequences",
    "compile",
    "long_share",  # counts where there are longer shards: build_training adds it
}
COMPUTATION_VERSION = 3
"""Raise this whenever the numbers of a training step change.

No checkpoint is then continued with other arithmetic. tests/model/pretraining/test_run_identity.py
fails if the numbers change and this does not.
"""

Identity = dict[str, Any]


def identify_run(preset: Preset, shards: Shards) -> Identity:
    """Return everything that must be the same for a checkpoint to be continued."""
    settings = preset.architecture.describe() | preset.pretraining.describe()
    return {
        "computation": COMPUTATION_VERSION,
        "vocabulary": shards.vocabulary_fingerprint,
        "shards": shards.fingerprint,
        **{name: value for name, value in settings.items() if name not in FREE_SETTINGS},
    }


def identify_adaptation(preset: Preset, probe: Probe | None) -> Identity:
    """Return what must be the same besides in a run that begins with loaded weights: settings that
    are not the defaults, and where a probe chooses what is written, its reviews and steps.
    """
    defaults = asdict(AdaptationConfig())
    settings = asdict(preset.adaptation).items()
    identity = {name: value for name, value in settings if value != defaults[name]}
    if probe:
        identity["probe"] = probe.compute_fingerprint()
        identity["probe_compares"] = "the same reviews"  # before, accuracies alone
        identity["validate_every"] = preset.pretraining.validate_every
    return identity


def check_same_run(now: Identity, then: Identity, output: Path) -> None:
    """Raise UserError, which names the differences, if a checkpoint is of another run."""
    differing = [name for name in now | then if now.get(name) != then.get(name)]
    if differing:
        differences = ", ".join(
            f"{name} was {_shorten_value(then.get(name))} and is {_shorten_value(now.get(name))}"
            for name in differing
        )
        raise UserError(
            f"{output} holds checkpoints of another run: {differences}; "
            "use another --output or remove that one"
        )


def _shorten_value(value: Any) -> str:
    return value[:12] if isinstance(value, str) and len(value) == 64 else repr(value)
