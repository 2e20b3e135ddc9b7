"""Every setting of a fine-tuning; stored beside its result."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from model.command import UserMistake
from model.finetuning.examples import Sampling, Split, Task
from model.presets import PRESETS


@dataclass(frozen=True)
class FinetuningSettings:
    """Defaults are google's for base (google-research/electra, configure_finetuning.py); `of_preset` gives others."""

    learning_rates: tuple[float, ...] = (1e-4,)
    """Each is trained from the same start, the best on dev is kept; the same grid for every arm."""
    epochs: float = 3.0
    batch: int = 32
    """Examples per step (Clark et al. 2020, table 7)."""
    warmup: float = 0.1
    """Share of the steps."""
    weight_decay: float = 0.0
    dropout: float | None = None
    """Of hidden states and attention; None: what the encoder's config.json says."""
    layer_decay: float = 0.8
    """A layer's learning rate over that of the layer above it: 0.8 for small and base, 0.9 for large (Clark et al.)."""
    clip: float = 1.0
    pooling: Literal["cls", "mean"] = "cls"
    """What a text is judged by: the [CLS] vector through the architecture's own head, or the mean over its tokens,
    2–5 points better for little-trained encoders."""
    max_length: int = 128
    """Tokens; longer texts are cut (questions with passages are cut into overlapping windows instead)."""
    stride: int = 64
    """Tokens two neighbouring windows of a passage share, at most half of those a question leaves to it."""
    n_train: int | None = 500_000
    n_dev: int | None = 1000
    n_test: int | None = 50_000
    """Examples used of each split at most, chosen by a hash; None: all there are. The defaults take all of every
    published set and keep a dump of hundreds of millions of reviews out of memory."""
    sampling: Literal["balanced", "natural"] = "natural"
    """Of the training examples; dev and test are always natural unless `balanced_test`."""
    balanced_test: bool = False
    sample_seed: int = 0
    """Chooses dev and test, the same for all arms and seeds, so that arms are compared on the same examples."""
    loss: Literal["cross_entropy", "focal"] = "cross_entropy"
    """Focal (Lin et al. 2017, arXiv 1708.02002): of classification, tokens and choice."""
    focal_alpha: tuple[float, ...] = ()
    """The weight of each class in focal loss; one number: of the second of two classes, the first has the rest to 1
    (eq. 5); empty: none (eq. 4)."""
    focal_gamma: float = 2.0
    class_weights: Literal["none", "balanced"] = "none"
    """Balanced: inverse to a class's frequency; of classification."""
    temperature: float = 2.0
    """Of the teacher's and the student's probabilities in distillation."""
    soft_weight: float = 0.5
    """Weight of the teacher's outputs in distillation, the labels have the rest."""
    hidden_weight: float = 0.0
    attention_weight: float = 0.0
    """Weights of the teacher's hidden states and attention in distillation (TinyBERT)."""
    patience: int | None = None
    """Evaluations on dev without an improvement after which a learning rate is given up; None: train to the end."""
    evaluations_per_epoch: int | None = None
    """On dev; None: five in all, at most one an epoch."""
    length_grouped: bool = True
    """Batches of texts of like length, padded to their longest; else every batch is padded to max_length."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """`auto`: bf16 where the device multiplies it in hardware."""
    clean: Literal["none", "letters"] = "none"
    """`letters` removes numbers and punctuation before tokenizing; of classification and regression."""

    def __post_init__(self) -> None:
        for name, low, high in BOUNDS:
            for value in _values(getattr(self, name)):
                if not low <= value <= high:
                    raise UserMistake(f"fine-tuning: {name} is {value}, must be from {low:g} to {high:g}")
        if not self.learning_rates:
            raise UserMistake("fine-tuning: learning_rates is empty, give at least one")

    def check(self, task: Task) -> None:
        """Refuses what the task would silently pass over."""
        for name, shapes in ONLY_OF.items():
            default = type(self).__dataclass_fields__[name].default
            if getattr(self, name) != default and task.shape not in shapes:
                raise UserMistake(
                    f"{name} has no effect on {task.name}, a task of shape {task.shape}: leave it out (it is for "
                    f"{', '.join(shapes)})"
                )
        alphas, classes = len(self.focal_alpha), len(task.labels)
        if alphas and self.loss != "focal":
            raise UserMistake("focal_alpha has no effect without loss=focal: leave it out")
        if alphas and alphas != classes and (alphas, classes) != (1, 2):
            raise UserMistake(f"focal_alpha: give a weight for each of the {classes} classes {', '.join(task.labels)}")

    @classmethod
    def of_preset(cls, name: str) -> "FinetuningSettings":
        """The preset's own defaults for fine-tuning."""
        if name not in PRESETS:
            raise UserMistake(f"--preset {name}: unknown; the presets are {', '.join(PRESETS)}")
        preset = asdict(PRESETS[name].finetuning)
        n_train = preset.pop("train_examples")
        return cls(**preset, **({"n_train": n_train} if n_train else {}))

    @classmethod
    def of_run(cls, run: Mapping[str, Any]) -> "FinetuningSettings":
        """From run.json."""
        settings: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in run["settings"].items()}
        return cls(**settings)

    def sampling_of(self, split: Split, seed: int) -> Sampling:
        """Training examples vary with the seed, so that seeds measure that too; dev and test never do."""
        if split == "train":
            return Sampling(self.n_train, seed, self.sampling == "balanced")
        n = self.n_dev if split == "dev" else self.n_test
        return Sampling(n, self.sample_seed, self.balanced_test)

    @classmethod
    def parse(cls, name: str, text: str) -> Any:
        """The value of a field from its text: `learning_rates=3e-4,1e-3`, `n_train=none`."""
        if name not in cls.__dataclass_fields__:
            raise UserMistake(f"{name}: no such setting; there are {', '.join(cls.__dataclass_fields__)}")
        hint = get_type_hints(cls)[name]
        if text.lower() in ("none", "all") and type(None) in get_args(hint):
            return None
        kind = next(k for k in (*get_args(hint), hint) if k is not type(None) and k is not Ellipsis)
        try:
            if hint == tuple[float, ...]:
                return tuple(float(part) for part in text.replace(",", " ").split())
            if hint is bool:
                return {"true": True, "false": False}[text.lower()]
            if get_origin(hint) is Literal:
                return {str(option): option for option in get_args(hint)}[text]
            return kind(text)
        except (ValueError, KeyError):
            raise UserMistake(f"{name}={text}: expected {_expected(hint)}") from None


BOUNDS: tuple[tuple[str, float, float], ...] = (
    ("learning_rates", 1e-8, 1.0),
    ("epochs", 0.01, 1000),
    ("batch", 1, 65536),
    ("warmup", 0.0, 1.0),
    ("weight_decay", 0.0, 1.0),
    ("dropout", 0.0, 0.95),
    ("layer_decay", 0.1, 1.0),
    ("clip", 0.0, 1000.0),
    ("max_length", 8, 8192),
    ("stride", 0, 8192),
    ("n_train", 2, 1e12),
    ("n_dev", 2, 1e12),
    ("n_test", 2, 1e12),
    ("focal_alpha", 0.0, 1.0),
    ("focal_gamma", 0.0, 100.0),
    ("temperature", 0.01, 1000.0),
    ("soft_weight", 0.0, 1.0),
    ("hidden_weight", 0.0, 1e6),
    ("attention_weight", 0.0, 1e6),
    ("patience", 1, 1e6),
    ("evaluations_per_epoch", 1, 1000),
)


ONLY_OF: dict[str, tuple[str, ...]] = {
    "loss": ("classification", "tokens", "choice"),
    "focal_alpha": ("classification", "tokens"),
    "class_weights": ("classification",),
    "clean": ("classification", "regression"),
}
"""Shapes of tasks on which a setting has an effect."""


def _expected(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(map(str, get_args(hint)))
    return getattr(hint, "__name__", str(hint))


def _values(value: Any) -> list[float]:
    if value is None:
        return []
    return list(value) if isinstance(value, tuple) else [value]
