"""What must be the same for a checkpoint to be continued, and what differs where it is not."""

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

from model.command import UserMistake
from model.presets import Preset
from model.pretraining.sequences import Shards

# These change what is written or how the work is cut up, not what is learned.
FREE_SETTINGS = {
    "log_every",
    "validate_every",
    "checkpoint_every",
    "keep_checkpoints",
    "device_batch",
    "validate_sequences",
    "compile",
}
COMPUTING_CODE = (
    "attention",
    "batches",
    "dropout",
    "electra",
    "encoder",
    "loop",
    "masking",
    "mixture",
    "mlm",
    "next_sentence",
    "optimizer",
    "sequences",
    "vocabulary_loss",
)

Identity = dict[str, Any]


def identify(preset: Preset, shards: Shards) -> Identity:
    settings = asdict(preset.architecture) | asdict(preset.pretraining)
    return {
        "code": _code(),
        "vocabulary": shards.vocabulary_fingerprint,
        "shards": shards.fingerprint,
        **{name: value for name, value in settings.items() if name not in FREE_SETTINGS},
    }


def demand_same(now: Identity, then: Identity, output: Path) -> None:
    """Refuses to continue what another run began."""
    differing = [name for name in now | then if now.get(name) != then.get(name)]
    if differing:
        told = ", ".join(f"{name} was {_short(then.get(name))} and is {_short(now.get(name))}" for name in differing)
        raise UserMistake(f"{output} holds checkpoints of another run: {told}; use another --output or remove that one")


def _code() -> str:
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for name in COMPUTING_CODE:
        digest.update((folder / f"{name}.py").read_bytes())
    return digest.hexdigest()


def _short(value: Any) -> str:
    return value[:12] if isinstance(value, str) and len(value) == 64 else repr(value)
