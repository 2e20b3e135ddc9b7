"""The sizes this project trains, every number with its source.

Sources, by their short names below:
  paper    Clark et al. 2020, ELECTRA, arXiv 2003.10555, tables 6 and 7
  google   google-research/electra, configure_pretraining.py, configure_finetuning.py, util/training_utils.py and README
  amazon   AmazonELECTRA, the system rebuilt here: base size, batch 1024, 250,000 steps, vocabulary 50,000
  bert     Devlin et al. 2019, arXiv 1810.04805
  ours     measured in this project on two CPU cores
"""

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args, get_type_hints

Objective = Literal["electra", "mlm", "mlm+nsp"]
Precision = Literal["auto", "fp32", "bf16"]
Pooling = Literal["cls", "mean"]
LARGEST_SEED = 2**32 - 1


def _demand(holds: bool, name: str, value: Any, expected: str) -> None:
    if not holds:
        raise ValueError(f"{name}={value}: must be {expected}")


def _demand_finite(config: Any) -> None:
    for name, value in vars(config).items():
        _demand(not isinstance(value, float) or math.isfinite(value), name, value, "a finite number")


@dataclass(frozen=True)
class Architecture:
    """Shape of the discriminator (or of the MLM trunk); the generator is derived from it."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    embedding: int
    generator_multiplier: float  # generator width as a fraction of `hidden`, at the same depth (google)
    max_positions: int = 512  # google
    type_vocabulary_size: int = 2  # google

    def __post_init__(self) -> None:
        _demand_finite(self)
        for name in ("layers", "hidden", "intermediate", "heads", "embedding", "max_positions", "type_vocabulary_size"):
            _demand(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        _demand(self.hidden % self.heads == 0, "hidden", self.hidden, f"a multiple of heads={self.heads}")

    def generator(self) -> "Architecture":
        """Same depth, narrower; heads of 64 as in google's configuration. ValueError where no such network exists."""
        hidden = int(self.hidden * self.generator_multiplier)
        heads = max(1, hidden // 64)
        told = f"such that the generator's width, {hidden}, is at least 1 and a multiple of its heads, {heads}"
        _demand(hidden >= 1 and hidden % heads == 0, "generator_multiplier", self.generator_multiplier, told)
        return replace(self, hidden=hidden, intermediate=4 * hidden, heads=heads, generator_multiplier=1.0)


@dataclass(frozen=True)
class PretrainingConfig:
    """Everything that decides what a pre-training run computes; stored beside its output."""

    steps: int
    batch: int  # sequences in one optimizer step, over all devices
    learning_rate: float
    masked_fraction: float = 0.15  # of the tokens that are not special (paper: of all tokens; see masking.py)
    warmup: float = 0.01  # fraction of the steps (google: 10,000 of 1,000,000)
    objective: Objective = "electra"
    discriminator_weight: float = 50.0  # paper
    generator_weight: float = 1.0  # paper
    mask_token_fraction: float = 0.85  # google; the rest keeps its token. MLM objectives use bert's 80/10/10
    temperature: float = 1.0  # of the generator's samples (google)
    dropout: float = 0.1  # paper, hidden states and attention
    weight_decay: float = 0.01  # paper, not on LayerNorm and biases
    adam_beta1: float = 0.9  # paper
    adam_beta2: float = 0.999  # paper
    adam_epsilon: float = 1e-6  # paper
    clip: float = 1.0  # google: global gradient norm
    initial_deviation: float = 0.02  # of the weight matrices before training (google, for widths of 256 and more)
    seed: int = 0
    precision: Precision = "auto"  # bf16 where the device multiplies it in hardware
    device_batch: int = 0  # sequences a device takes at once, the rest is accumulated; 0: its whole share
    log_every: int = 50  # steps
    validate_every: int = 0  # steps; 0: only at the end
    validate_sequences: int = 1024  # the first of the dev shards
    checkpoint_every: int = 500  # steps
    keep_checkpoints: int = 2  # the newest, besides the best
    compile: bool = True  # torch.compile, on the devices where it pays (CUDA)

    def __post_init__(self) -> None:
        _demand_finite(self)
        for name in ("steps", "batch", "log_every", "checkpoint_every", "keep_checkpoints", "validate_sequences"):
            _demand(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("masked_fraction", "temperature", "learning_rate", "adam_epsilon", "clip", "initial_deviation"):
            _demand(getattr(self, name) > 0, name, getattr(self, name), "more than 0")
        for name in ("discriminator_weight", "generator_weight", "weight_decay", "device_batch", "validate_every"):
            _demand(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")
        for name in ("masked_fraction", "warmup", "mask_token_fraction"):
            _demand(0 <= getattr(self, name) <= 1, name, getattr(self, name), "between 0 and 1")
        for name in ("dropout", "adam_beta1", "adam_beta2"):
            _demand(0 <= getattr(self, name) < 1, name, getattr(self, name), "at least 0 and less than 1")
        _demand(0 <= self.seed <= LARGEST_SEED, "seed", self.seed, f"between 0 and {LARGEST_SEED}")
        _demand(self.objective in get_args(Objective), "objective", self.objective, " or ".join(get_args(Objective)))
        _demand(self.precision in get_args(Precision), "precision", self.precision, " or ".join(get_args(Precision)))


@dataclass(frozen=True)
class FinetuningConfig:
    """Defaults of fine-tuning; every arm of a comparison gets the same ones."""

    learning_rates: tuple[float, ...]  # each is tried, the best on dev is kept
    epochs: int = 3  # google
    batch: int = 32  # google
    layer_decay: float = 0.8  # google; learning rate multiplier from one layer to the one below it
    warmup: float = 0.1  # fraction of the steps (google)
    weight_decay: float = 0.0  # google
    dropout: float = 0.1  # paper
    pooling: Pooling = "cls"  # google
    max_length: int = 128  # tokens (google)
    train_examples: int = 0  # at most; 0: all there are
    n_dev: int = 1000  # examples at most that decide between the learning rates and epochs


@dataclass(frozen=True)
class Preset:
    name: str
    architecture: Architecture
    vocabulary_size: int  # of a vocabulary trained for this preset; a shard's own vocabulary decides
    max_length: int  # tokens in one packed sequence
    pretraining: PretrainingConfig
    finetuning: FinetuningConfig

    def __post_init__(self) -> None:
        if self.pretraining.objective == "electra":
            self.architecture.generator()
        types = self.architecture.type_vocabulary_size
        _demand(
            self.pretraining.objective != "mlm+nsp" or types >= 2,
            "type_vocabulary_size",
            types,
            "at least 2 for mlm+nsp",
        )


_SMALL = Architecture(layers=12, hidden=256, intermediate=1024, heads=4, embedding=128, generator_multiplier=1 / 4)
_BASE = Architecture(layers=12, hidden=768, intermediate=3072, heads=12, embedding=768, generator_multiplier=1 / 3)
_LARGE = Architecture(layers=24, hidden=1024, intermediate=4096, heads=16, embedding=1024, generator_multiplier=1 / 4)

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        # ours: 4 million tokens, 185 CPU seconds of `python -m model.pretrain --preset tiny --threads 1` on the
        # 20,000 reviews of `amazon-electra sample`. At this width a deviation of 0.02 (with dropout 0.1) makes the
        # start a plateau: after 400 steps the discriminator finds 5% of the replaced tokens, with 0.07 and no dropout
        # 14%, after 900 41%. A learning rate of 2e-3 trains the generator faster and the discriminator never (3%
        # after 700 steps). Mean pooling beats [CLS] by 2 to 5 points for an encoder this little trained. The learning
        # rates span the best ones of both arms.
        # Labels: the sample's language pays where they are few (beam_jobs/sample_dump.py). Accuracy of polarity on
        # test, in-domain against random, seeds 0 to 2, interval over seeds and examples: 100 labels 0.991 against
        # 0.796, +0.195 [0.125, 0.266]; 200 labels 0.995 against 0.928, +0.067 [0.003, 0.131]; 300 labels 0.996
        # against 0.964, +0.032 [-0.001, 0.064]. 100 was chosen having seen these, so the seeds 3 to 5 are the check:
        # 0.993 against 0.859, +0.134 [0.097, 0.171]. Stars, 100 labels, seeds 0 to 2: 0.767 against 0.610, +0.157
        # [0.048, 0.266]. By `python -m model.finetune --preset tiny --set n_train=N`; tests/bench/small_budget.py
        # repeats it for any budget.
        Preset(
            "tiny",
            Architecture(layers=2, hidden=128, intermediate=512, heads=2, embedding=128, generator_multiplier=1 / 2),
            vocabulary_size=4_000,
            max_length=128,
            pretraining=PretrainingConfig(
                steps=2_000,
                batch=16,
                learning_rate=1e-3,
                warmup=0.1,
                dropout=0.0,
                initial_deviation=0.07,
                validate_every=500,
                log_every=20,
            ),
            finetuning=FinetuningConfig(
                learning_rates=(1e-3, 4e-3),
                epochs=10,
                batch=16,
                layer_decay=1.0,
                pooling="mean",
                train_examples=100,
                n_dev=300,
            ),
        ),
        # paper table 6 and google: small, 1M steps of 128 × 128 tokens.
        Preset(
            "small",
            _SMALL,
            vocabulary_size=30_522,  # bert
            max_length=128,
            pretraining=PretrainingConfig(steps=1_000_000, batch=128, learning_rate=5e-4, warmup=10_000 / 1_000_000),
            finetuning=FinetuningConfig(learning_rates=(3e-4,)),
        ),
        # paper table 6 and google: base, 766K steps of 256 × 512 tokens.
        Preset(
            "base",
            _BASE,
            vocabulary_size=30_522,
            max_length=512,
            pretraining=PretrainingConfig(steps=766_000, batch=256, learning_rate=2e-4, warmup=10_000 / 766_000),
            finetuning=FinetuningConfig(learning_rates=(1e-4,)),
        ),
        # paper table 6 and google: large (ELECTRA-400K), 25% masked.
        Preset(
            "large",
            _LARGE,
            vocabulary_size=30_522,
            max_length=512,
            pretraining=PretrainingConfig(
                steps=400_000, batch=2_048, learning_rate=2e-4, warmup=10_000 / 400_000, masked_fraction=0.25
            ),
            finetuning=FinetuningConfig(learning_rates=(5e-5,), layer_decay=0.9),
        ),
        # amazon: base on reviews.
        Preset(
            "amazon-base",
            _BASE,
            vocabulary_size=50_000,
            max_length=128,
            pretraining=PretrainingConfig(steps=250_000, batch=1_024, learning_rate=2e-4, warmup=0.1),
            finetuning=FinetuningConfig(learning_rates=(1e-4,)),
        ),
    )
}


def with_settings(preset: Preset, settings: dict[str, str]) -> Preset:
    """`--set field=value`: a field of PretrainingConfig, or one of the architecture."""
    known = {f.name: part for part in ("architecture", "pretraining") for f in fields(getattr(preset, part))}
    changes: dict[str, dict[str, Any]] = {"architecture": {}, "pretraining": {}}
    for name, text in settings.items():
        if name not in known:
            raise ValueError(f"--set {name}: no such field; there are {', '.join(sorted(known))}")
        changes[known[name]][name] = _parse(type(getattr(preset, known[name])), name, text)
    parts: dict[str, Any] = {part: replace(getattr(preset, part), **values) for part, values in changes.items()}
    return replace(preset, **parts)


def _parse(config: type, name: str, text: str) -> Any:
    """The value of a field from its text; numbers may be written 5e-4 and 1_000."""
    wanted = get_type_hints(config)[name]
    try:
        if wanted is bool:
            return {"true": True, "false": False}[text.lower()]
        return wanted(text) if wanted in (int, float) else text
    except (ValueError, KeyError):
        raise ValueError(f"--set {name}={text}: expected {getattr(wanted, '__name__', wanted)}") from None
