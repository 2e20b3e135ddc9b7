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
from typing import Any, Literal

from beam_jobs.job.errors import UserError
from beam_jobs.job.settings import LARGEST_SEED, check_settings, setting

Objective = Literal["electra", "mlm", "mlm+nsp"]
Precision = Literal["auto", "fp32", "bf16"]
Pooling = Literal["cls", "mean"]
PresetName = Literal["tiny", "small", "base", "large", "amazon-base"]

LAYER_NORM_EPSILON = 1e-12  # google, transformers
AUTO_PRECISION = "arithmetic; auto: bf16 where the device is fast at multiplying it"

ELECTRA = {"objective": ("electra",)}
VALIDATION = {"dev shards": ("given",)}
CLASSIFICATION = {"shape": ("classification",)}
SPAN = {"shape": ("span",)}
DISTILLATION = {"teacher": ("given",)}
"""What settings need to be read at all."""


@dataclass(frozen=True)
class Architecture:
    """Shape of the discriminator (or of the MLM trunk); the generator is derived from it."""

    layers: int = setting("transformer layers", ge=1)
    hidden: int = setting("width of the hidden states", ge=1)
    intermediate: int = setting("width inside the feed-forward blocks", ge=1)
    heads: int = setting("attention heads", ge=1)
    embedding: int = setting("width of the token embeddings", ge=1)
    generator_multiplier: float = setting(
        "width of the generator as a fraction of `hidden`; 1: all widths and heads alike",
        needs=ELECTRA,
    )
    max_positions: int = setting("longest sequence, in tokens (google)", 512, ge=1)
    type_vocabulary_size: int = setting("kinds of segments (google)", 2, ge=1)
    layer_norm_eps: float = setting(
        "added to the variance in every LayerNorm (google)", LAYER_NORM_EPSILON, gt=0
    )
    generator_layers: int = setting(
        "of the generator; 0: as many as the discriminator (google)", 0, ge=0, needs=ELECTRA
    )

    def __post_init__(self) -> None:
        check_settings(self)
        _check_field(
            self.hidden % self.heads == 0,
            "hidden",
            self.hidden,
            f"a multiple of heads={self.heads}",
        )
        _check_field(
            self.generator_layers <= self.layers,
            "generator_layers",
            self.generator_layers,
            f"at most layers={self.layers}",
        )

    @property
    def has_wide_generator(self) -> bool:
        """Return whether the generator's layers have the shape of the discriminator's."""
        return self.generator_multiplier == 1

    def derive_generator(self) -> "Architecture":
        """Return the generator: `generator_layers` deep, narrower, heads of 64 wide (google).

        Raise ValueError if the width is no multiple of the heads.
        """
        layers = self.generator_layers or self.layers
        if self.has_wide_generator:
            return replace(self, layers=layers, generator_layers=0)
        hidden = round(self.hidden * self.generator_multiplier)
        heads = max(1, hidden // 64)
        expected = (
            f"such that the generator's width, {hidden}, is at least 1 "
            f"and a multiple of its heads, {heads}"
        )
        is_possible = hidden >= 1 and hidden % heads == 0
        _check_field(is_possible, "generator_multiplier", self.generator_multiplier, expected)
        return replace(
            self,
            layers=layers,
            hidden=hidden,
            intermediate=4 * hidden,
            heads=heads,
            generator_multiplier=1.0,
            generator_layers=0,
        )


def _check_field(holds: bool, name: str, value: Any, expected: str) -> None:
    if not holds:
        raise UserError(f"{name}={value}: must be {expected}")


@dataclass(frozen=True)
class PretrainingConfig:
    """Everything that decides what a pre-training run computes; stored beside its output."""

    steps: int = setting("optimizer steps", ge=1)
    batch: int = setting("sequences in one optimizer step, over all devices", ge=1)
    learning_rate: float = setting("its peak, after the warm-up", gt=0)
    mask_probability: float = setting(
        "share of the tokens that are not special (paper: of all; masking.py)", 0.15, gt=0, le=1
    )
    segment_probability: float = setting(
        "that a document is cut into A and B (google: an example, 0.9)",
        0.5,
        ge=0,
        le=1,
        needs={"objective": ("electra", "mlm")},
    )
    warmup: float = setting("share of the steps (google: 10,000 of 1,000,000)", 0.01, ge=0, le=1)
    objective: Objective = setting("what is learnt", "electra")
    discriminator_weight: float = setting("of its loss (paper)", 50.0, ge=0, needs=ELECTRA)
    generator_weight: float = setting("of the generator's loss (paper)", 1.0, ge=0, needs=ELECTRA)
    mask_token_fraction: float = setting(
        "share of the chosen positions that become [MASK], the rest keeps its token (google); MLM "
        "has bert's 80/10/10",
        0.85,
        ge=0,
        le=1,
        needs=ELECTRA,
    )
    dropout: float = setting("of hidden states and attention (paper)", 0.1, ge=0, lt=1)
    weight_decay: float = setting("not of LayerNorm and biases (paper)", 0.01, ge=0)
    adam_beta1: float = setting("Adam's first decay rate (paper)", 0.9, ge=0, lt=1)
    adam_beta2: float = setting("Adam's second decay rate (paper)", 0.999, ge=0, lt=1)
    adam_epsilon: float = setting("Adam's epsilon (paper)", 1e-6, gt=0)
    clip: float = setting("largest global norm of the gradient (google)", 1.0, gt=0)
    initializer_range: float = setting(
        "deviation of the start weights (google, for widths from 256)", 0.02, gt=0
    )
    seed: int = setting(
        "of the weights, the order of the sequences and the masked positions",
        0,
        ge=0,
        le=LARGEST_SEED,
    )
    precision: Precision = setting(AUTO_PRECISION, "auto")
    device_batch: int = setting(
        "sequences a device takes at once, accumulated; 0: its whole share. Halved where they do "
        "not fit into its memory",
        0,
        ge=0,
    )
    log_every: int = setting("steps from one line of metrics to the next", 50, ge=1)
    validate_every: int = setting("steps; 0: ten times in all", 0, ge=0, needs=VALIDATION)
    validate_sequences: int = setting("the first of the dev shards", 1024, ge=1, needs=VALIDATION)
    checkpoint_every: int = setting("steps from one checkpoint to the next", 500, ge=1)
    keep_checkpoints: int = setting(
        "the newest ones, besides the best; a stage keeps none once it is complete, unless this "
        "is set",
        2,
        ge=1,
    )
    compile: bool = setting("torch.compile, on the devices where it pays (CUDA)", True)

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

    learning_rates: tuple[float, ...] = setting(
        "each is trained from the same start, the best on dev is kept", (1e-4,), ge=1e-8, le=1
    )
    epochs: float = setting("passes through the training examples", 3.0, ge=0.01, le=1000)
    batch: int = setting("examples in one step (paper)", 32, ge=1, le=65_536)
    warmup: float = setting("share of the steps (google)", 0.1, ge=0, le=1)
    weight_decay: float = setting(
        "not of LayerNorm and biases (paper; google's code: 0.01)", 0.0, ge=0, le=1
    )
    dropout: float | None = setting(
        "of hidden states and attention; none: as the encoder's config.json", None, ge=0, le=0.95
    )
    layer_decay: float = setting(
        "a layer's learning rate over that of the layer above it: 0.8 for small and base, 0.9 for "
        "large (paper)",
        0.8,
        ge=0.1,
        le=1,
    )
    clip: float = setting("largest global norm of the gradient", 1.0, ge=0, le=1000)
    pooling: Pooling = setting(
        "what a text is judged by: the [CLS] vector through the architecture's own head, or the "
        "mean over its tokens, 2–5 points better for little-trained encoders",
        "cls",
    )
    max_length: int | None = setting(
        "tokens; longer texts are cut, questions with passages into overlapping windows; none: "
        "128, for questions with passages 384, at most those the encoder was trained at",
        None,
        ge=8,
        le=8192,
    )
    untrained_positions: bool = setting(
        "let max_length be more than the tokens the encoder was trained at", False
    )
    empty_windows: float | None = setting(
        "windows without an answer that are trained on for each with one, drawn by the seed; "
        "none: all; of questions with passages",
        1.0,
        ge=0,
        le=1000,
        needs=SPAN,
    )
    stride: int = setting(
        "tokens two neighbouring windows of a passage share, at most half of those a question "
        "leaves to it",
        64,
        ge=0,
        le=8192,
        needs=SPAN,
    )
    n_train: int | None = setting(
        "training examples at most, chosen by a hash; none: all. The defaults take all of every "
        "published set and keep a dump of hundreds of millions of reviews out of memory",
        500_000,
        ge=2,
    )
    n_dev: int | None = setting(
        "examples at most that choose rate and epoch; none: all", 1000, ge=2
    )
    n_test: int | None = setting("test examples at most; none: all", 50_000, ge=2)
    sampling: Literal["balanced", "natural"] = setting(
        "of the training examples; dev and test are natural unless `balanced_test`",
        "natural",
    )
    balanced_test: bool = setting("balance dev and test too", False)
    sample_seed: int = setting("chooses dev and test, the same for all arms and seeds", 0)
    loss: Literal["cross_entropy", "focal"] = setting(
        "focal (Lin et al. 2017, arXiv 1708.02002): of classification, tokens and choice",
        "cross_entropy",
        needs={"shape": ("classification", "tokens", "choice")},
    )
    focal_alpha: tuple[float, ...] = setting(
        "the weight of each class in focal loss; one number: of the second of two classes, the "
        "first has the rest to 1 (eq. 5); empty: none (eq. 4)",
        (),
        ge=0,
        le=1,
        needs={"shape": ("classification", "tokens"), "loss": ("focal",)},
    )
    focal_gamma: float = setting("of focal loss", 2.0, ge=0, le=100, needs={"loss": ("focal",)})
    class_weights: Literal["none", "balanced"] = setting(
        "balanced: inverse to a class's frequency; of classification", "none", needs=CLASSIFICATION
    )
    temperature: float = setting(
        "of the teacher's and the student's probabilities in distillation",
        2.0,
        ge=0.01,
        le=1000,
        needs=DISTILLATION,
    )
    soft_weight: float = setting(
        "of the teacher's outputs in distillation, the labels have the rest",
        0.5,
        ge=0,
        le=1,
        needs=DISTILLATION,
    )
    hidden_weight: float = setting(
        "of the teacher's hidden states in distillation (TinyBERT)",
        0.0,
        ge=0,
        le=1_000_000,
        needs=DISTILLATION,
    )
    attention_weight: float = setting(
        "of the teacher's attention in distillation (TinyBERT)",
        0.0,
        ge=0,
        le=1_000_000,
        needs=DISTILLATION,
    )
    patience: int | None = setting(
        "evaluations on dev without an improvement after which a learning rate is given up; none: "
        "train to the end",
        None,
        ge=1,
    )
    evaluations_per_epoch: int | None = setting(
        "on dev; none: five in all, at most one an epoch", None, ge=1, le=1000
    )
    length_grouped: bool = setting(
        "batches of texts of like length, padded to their longest; else every batch is padded to "
        "max_length",
        True,
    )
    precision: Precision = setting(AUTO_PRECISION, "auto")
    clean: Literal["none", "letters"] = setting(
        "letters: without numbers and punctuation; of classification and regression",
        "none",
        needs={"shape": ("classification", "regression")},
    )

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
