"""What can be set for training: each field with its meaning, unit, bounds, default and source.

Sources, by their short names below:
  paper    Clark et al. 2020, ELECTRA, arXiv 2003.10555, tables 6 and 7
  google   google-research/electra: configure_pretraining.py, configure_finetuning.py,
           util/training_utils.py and README
  bert     Devlin et al. 2019, arXiv 1810.04805

Only the standard library: a GPU machine has no pydantic for certain. `flows` makes its forms of
the same fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from beam_jobs.job.errors import UserError
from beam_jobs.job.settings import LARGEST_SEED, Setting, check_settings

Objective = Literal["electra", "mlm", "mlm+nsp"]
Precision = Literal["auto", "fp32", "bf16"]
Pooling = Literal["cls", "mean"]
PresetName = Literal["tiny", "small", "base", "large", "amazon-base"]

AUTO_PRECISION = Setting("arithmetic; auto: bf16 where the device multiplies it in hardware")


@dataclass(frozen=True)
class Architecture:
    """Shape of the discriminator (or of the MLM trunk); the generator is derived from it."""

    layers: Annotated[int, Setting("transformer layers", ge=1)]
    hidden: Annotated[int, Setting("width of the hidden states", ge=1)]
    intermediate: Annotated[int, Setting("width inside the feed-forward blocks", ge=1)]
    heads: Annotated[int, Setting("attention heads", ge=1)]
    embedding: Annotated[int, Setting("width of the token embeddings", ge=1)]
    generator_multiplier: Annotated[
        float, Setting("width of the generator as a fraction of `hidden`, at the same depth")
    ]
    max_positions: Annotated[int, Setting("longest sequence, in tokens (google)", ge=1)] = 512
    type_vocabulary_size: Annotated[int, Setting("kinds of segments (google)", ge=1)] = 2

    def __post_init__(self) -> None:
        check_settings(self)
        _check_field(
            self.hidden % self.heads == 0,
            "hidden",
            self.hidden,
            f"a multiple of heads={self.heads}",
        )

    def derive_generator(self) -> "Architecture":
        """Return the generator: as deep, narrower, heads of 64 wide (google).

        Raise ValueError if the width is no multiple of the heads.
        """
        hidden = round(self.hidden * self.generator_multiplier)
        heads = max(1, hidden // 64)
        expected = (
            f"such that the generator's width, {hidden}, is at least 1 "
            f"and a multiple of its heads, {heads}"
        )
        is_possible = hidden >= 1 and hidden % heads == 0
        _check_field(is_possible, "generator_multiplier", self.generator_multiplier, expected)
        return replace(
            self, hidden=hidden, intermediate=4 * hidden, heads=heads, generator_multiplier=1.0
        )


def _check_field(holds: bool, name: str, value: Any, expected: str) -> None:
    if not holds:
        raise UserError(f"{name}={value}: must be {expected}")


@dataclass(frozen=True)
class PretrainingConfig:
    """Everything that decides what a pre-training run computes; stored beside its output."""

    steps: Annotated[int, Setting("optimizer steps", ge=1)]
    batch: Annotated[int, Setting("sequences in one optimizer step, over all devices", ge=1)]
    learning_rate: Annotated[float, Setting("its peak, after the warm-up", gt=0)]
    mask_probability: Annotated[
        float,
        Setting("share of the tokens that are not special (paper: of all; masking.py)", gt=0, le=1),
    ] = 0.15
    segment_probability: Annotated[
        float, Setting("that a document is cut into A and B (google: an example, 0.9)", ge=0, le=1)
    ] = 0.5
    warmup: Annotated[
        float, Setting("share of the steps (google: 10,000 of 1,000,000)", ge=0, le=1)
    ] = 0.01
    objective: Annotated[Objective, Setting("what is learnt")] = "electra"
    discriminator_weight: Annotated[float, Setting("of the discriminator's loss (paper)", ge=0)] = (
        50.0
    )
    generator_weight: Annotated[float, Setting("of the generator's loss (paper)", ge=0)] = 1.0
    mask_token_fraction: Annotated[
        float,
        Setting(
            "share of the chosen positions that become [MASK], the rest keeps its token (google); "
            "MLM has bert's 80/10/10",
            ge=0,
            le=1,
        ),
    ] = 0.85
    temperature: Annotated[float, Setting("of the generator's samples (google)", gt=0)] = 1.0
    dropout: Annotated[float, Setting("of hidden states and attention (paper)", ge=0, lt=1)] = 0.1
    weight_decay: Annotated[float, Setting("not of LayerNorm and biases (paper)", ge=0)] = 0.01
    adam_beta1: Annotated[float, Setting("Adam's first decay rate (paper)", ge=0, lt=1)] = 0.9
    adam_beta2: Annotated[float, Setting("Adam's second decay rate (paper)", ge=0, lt=1)] = 0.999
    adam_epsilon: Annotated[float, Setting("Adam's epsilon (paper)", gt=0)] = 1e-6
    clip: Annotated[float, Setting("largest global norm of the gradient (google)", gt=0)] = 1.0
    initializer_range: Annotated[
        float, Setting("deviation of the start weights (google, for widths from 256)", gt=0)
    ] = 0.02
    seed: Annotated[
        int,
        Setting(
            "of the weights, the order of the sequences and the masked positions",
            ge=0,
            le=LARGEST_SEED,
        ),
    ] = 0
    precision: Annotated[Precision, AUTO_PRECISION] = "auto"
    device_batch: Annotated[
        int, Setting("sequences a device takes at once, accumulated; 0: its whole share", ge=0)
    ] = 0
    log_every: Annotated[int, Setting("steps from one line of metrics to the next", ge=1)] = 50
    validate_every: Annotated[int, Setting("steps; 0: only at the end", ge=0)] = 0
    validate_sequences: Annotated[int, Setting("the first of the dev shards", ge=1)] = 1024
    checkpoint_every: Annotated[int, Setting("steps from one checkpoint to the next", ge=1)] = 500
    keep_checkpoints: Annotated[
        int,
        Setting(
            "the newest ones, besides the best; a stage keeps none once it is complete, unless "
            "this is set",
            ge=1,
        ),
    ] = 2
    compile: Annotated[bool, Setting("torch.compile, on the devices where it pays (CUDA)")] = True

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def has_segments(self) -> bool:
        """Return whether tokens of type 1 occur in training."""
        return self.objective == "mlm+nsp" or self.segment_probability > 0


@dataclass(frozen=True)
class FinetuningSettings:
    """Everything that decides what a fine-tuning computes; every arm of a comparison gets the same.

    The defaults are google's for base; the presets have others.
    """

    learning_rates: Annotated[
        tuple[float, ...],
        Setting("each is trained from the same start, the best on dev is kept", ge=1e-8, le=1),
    ] = (1e-4,)
    epochs: Annotated[float, Setting("passes through the training examples", ge=0.01, le=1000)] = (
        3.0
    )
    batch: Annotated[int, Setting("examples in one step (paper)", ge=1, le=65_536)] = 32
    warmup: Annotated[float, Setting("share of the steps (google)", ge=0, le=1)] = 0.1
    weight_decay: Annotated[
        float, Setting("not of LayerNorm and biases (paper; google's code: 0.01)", ge=0, le=1)
    ] = 0.0
    dropout: Annotated[
        float | None,
        Setting(
            "of hidden states and attention; none: as the encoder's config.json", ge=0, le=0.95
        ),
    ] = None
    layer_decay: Annotated[
        float,
        Setting(
            "a layer's learning rate over that of the layer above it: 0.8 for small and base, 0.9 "
            "for large (paper)",
            ge=0.1,
            le=1,
        ),
    ] = 0.8
    clip: Annotated[float, Setting("largest global norm of the gradient", ge=0, le=1000)] = 1.0
    pooling: Annotated[
        Pooling,
        Setting(
            "what a text is judged by: the [CLS] vector through the architecture's own head, or "
            "the mean over its tokens, 2–5 points better for little-trained encoders"
        ),
    ] = "cls"
    max_length: Annotated[
        int | None,
        Setting(
            "tokens; longer texts are cut, questions with passages into overlapping windows; none: "
            "128, for questions with passages 384, at most those the encoder was trained at",
            ge=8,
            le=8192,
        ),
    ] = None
    untrained_positions: Annotated[
        bool,
        Setting("let max_length be more than the tokens the encoder was trained at"),
    ] = False
    empty_windows: Annotated[
        float | None,
        Setting(
            "windows without an answer that are trained on for each with one, drawn by the seed; "
            "none: all; of questions with passages",
            ge=0,
            le=1000,
        ),
    ] = 1.0
    stride: Annotated[
        int,
        Setting(
            "tokens two neighbouring windows of a passage share, at most half of those a question "
            "leaves to it",
            ge=0,
            le=8192,
        ),
    ] = 64
    n_train: Annotated[
        int | None,
        Setting(
            "training examples at most, chosen by a hash; none: all. The defaults take all of "
            "every published set and keep a dump of hundreds of millions of reviews out of memory",
            ge=2,
        ),
    ] = 500_000
    n_dev: Annotated[
        int | None,
        Setting("examples at most that choose rate and epoch; none: all", ge=2),
    ] = 1000
    n_test: Annotated[int | None, Setting("test examples at most; none: all", ge=2)] = 50_000
    sampling: Annotated[
        Literal["balanced", "natural"],
        Setting("of the training examples; dev and test are natural unless `balanced_test`"),
    ] = "natural"
    balanced_test: Annotated[bool, Setting("balance dev and test too")] = False
    sample_seed: Annotated[
        int, Setting("chooses dev and test, the same for all arms and seeds")
    ] = 0
    loss: Annotated[
        Literal["cross_entropy", "focal"],
        Setting("focal (Lin et al. 2017, arXiv 1708.02002): of classification, tokens and choice"),
    ] = "cross_entropy"
    focal_alpha: Annotated[
        tuple[float, ...],
        Setting(
            "the weight of each class in focal loss; one number: of the second of two classes, the "
            "first has the rest to 1 (eq. 5); empty: none (eq. 4)",
            ge=0,
            le=1,
        ),
    ] = ()
    focal_gamma: Annotated[float, Setting("of focal loss", ge=0, le=100)] = 2.0
    class_weights: Annotated[
        Literal["none", "balanced"],
        Setting("balanced: inverse to a class's frequency; of classification"),
    ] = "none"
    temperature: Annotated[
        float,
        Setting(
            "of the teacher's and the student's probabilities in distillation", ge=0.01, le=1000
        ),
    ] = 2.0
    soft_weight: Annotated[
        float,
        Setting("of the teacher's outputs in distillation, the labels have the rest", ge=0, le=1),
    ] = 0.5
    hidden_weight: Annotated[
        float,
        Setting("of the teacher's hidden states in distillation (TinyBERT)", ge=0, le=1_000_000),
    ] = 0.0
    attention_weight: Annotated[
        float, Setting("of the teacher's attention in distillation (TinyBERT)", ge=0, le=1_000_000)
    ] = 0.0
    patience: Annotated[
        int | None,
        Setting(
            "evaluations on dev without an improvement after which a learning rate is given up; "
            "none: train to the end",
            ge=1,
        ),
    ] = None
    evaluations_per_epoch: Annotated[
        int | None, Setting("on dev; none: five in all, at most one an epoch", ge=1, le=1000)
    ] = None
    length_grouped: Annotated[
        bool,
        Setting(
            "batches of texts of like length, padded to their longest; else every batch is padded "
            "to max_length"
        ),
    ] = True
    precision: Annotated[Precision, AUTO_PRECISION] = "auto"
    clean: Annotated[
        Literal["none", "letters"],
        Setting("letters: without numbers and punctuation; of classification and regression"),
    ] = "none"

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.learning_rates:
            raise UserError("learning_rates is empty, give at least one")

    @classmethod
    def from_run(cls, run: Mapping[str, Any]) -> "FinetuningSettings":
        """Return the settings that a run.json holds."""
        settings: dict[str, Any] = {
            n: tuple(v) if isinstance(v, list) else v for n, v in run["settings"].items()
        }
        return cls(**settings)
