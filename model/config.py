"""Settings of training: each field with its meaning, unit, bounds, default and source: paper is
ELECTRA's (Clark et al. 2020, arXiv 2003.10555), google is google-research/electra, bert is Devlin
et al. 2019 (arXiv 1810.04805).
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from typing_extensions import Doc

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.settings import MAX_SEED, Settings
from amazon_electra.model.architecture import Architecture
from amazon_electra.model.pretraining.objectives import check_objective, find_objective

Objective = Annotated[str, AfterValidator(check_objective)]
"""Name of one in model/pretraining/objectives.py."""
Precision = Literal["auto", "fp32", "bf16"]
Switch = Annotated[
    Literal["auto", "on", "off"],
    BeforeValidator(lambda given: YAML_SWITCHES.get(str(given).lower(), given)),
]
YAML_SWITCHES = {"true": "on", "false": "off"}  # so YAML reads these words
RecipeName = Literal["sample", "published", "small", "base", "large", "amazon-base"]
RecipeChoice = Literal["auto", RecipeName]

AUTO_PRECISION = "auto: bf16 where the device multiplies it fast, else fp32"
MIN_VOCABULARY = 200  # fewer entries leave no room for words beside letters

Device = Literal["auto", "cpu", "cuda", "xla"]
PretrainingDevice = Literal["auto", "cpu", "cuda", "xla", "xla-spmd"]
DEVICE = Doc("device to compute on: auto takes a GPU if there is one; xla is one core of a TPU")
TASK = Doc("name of a task (model/finetuning/tasks/README.md)")
DATA = Doc("folder or file of the task's data")
TARGET_ACCURACY = (
    "Least share of right answers, for example 0.97, that must be promised of what `score` calls "
    "decided; it writes ask where the model is less sure. Empty: no such column"
)


class PretrainingConfig(Settings, use_attribute_docstrings=True):
    """Everything that decides what a pre-training run computes; stored beside its output."""

    steps: int = Field(ge=1)
    """optimizer steps"""
    batch: int = Field(ge=1)
    """sequences in one optimizer step, over all devices"""
    learning_rate: float = Field(gt=0)
    """peak, after the warm-up"""
    mask_probability: float = Field(default=0.15, gt=0, le=1)
    """share of the tokens that are masked, special ones aside (paper: of all; masking.py)"""
    segment_probability: float = Field(default=0.5, ge=0, le=1)
    """probability that a document is cut into segments A and B (google: an example, 0.9)"""
    warmup: float = Field(default=0.01, ge=0, le=1)
    """share of the steps (google: 10,000 of 1,000,000)"""
    objective: Objective = "electra"
    """what is learnt: electra, mlm (masked language modelling) or mlm+nsp (and next sentences)"""
    discriminator_weight: float = Field(default=50.0, ge=0)
    """weight of the discriminator's loss (paper)"""
    generator_weight: float = Field(default=1.0, ge=0)
    """weight of the generator's loss (paper)"""
    mask_token_fraction: float = Field(default=0.85, ge=0, le=1)
    """share of the masked positions that become [MASK] (google); MLM has bert's 80/10/10"""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """dropout of hidden states and attention (paper)"""
    weight_decay: float = Field(default=0.01, ge=0)
    """weight decay, except of LayerNorm and biases (paper)"""
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    """Adam's first decay rate (paper)"""
    adam_beta2: float = Field(default=0.999, ge=0, lt=1)
    """Adam's second decay rate (paper)"""
    adam_epsilon: float = Field(default=1e-6, gt=0)
    """Adam's epsilon (paper)"""
    clip: float = Field(default=1.0, gt=0)
    """largest global norm of the gradient (google)"""
    initializer_range: float = Field(default=0.02, gt=0)
    """standard deviation of the start weights (google, for widths from 256)"""
    seed: int = Field(default=0, ge=0, le=MAX_SEED)
    """decides the weights, the order of the sequences and the masked positions"""
    precision: Precision = Field(default="auto", description=AUTO_PRECISION)
    device_batch: int | None = Field(default=None, ge=1)
    """sequences that a device computes at once; none: its share, halved until it fits its memory"""
    log_every: int = Field(default=50, ge=1)
    """steps from one line of metrics to the next"""
    validate_every: int | None = Field(default=None, ge=1)
    """steps from one validation to the next; none: ten validations in all"""
    validate_sequences: int = Field(default=1024, ge=1)
    """number of dev sequences to validate on, the first of the shards"""
    checkpoint_every: int = Field(default=500, ge=1)
    """steps from one checkpoint to the next"""
    keep_checkpoints: int = Field(default=2, ge=1)
    """number of checkpoints to keep, the newest; a complete stage keeps none unless this is set"""
    compile: Switch = "auto"
    """torch.compile, and on one GPU a CUDA graph of the step; auto: on CUDA, unless it fails"""

    @property
    def has_segments(self) -> bool:
        """Return whether tokens of type 1 occur in training."""
        return find_objective(self.objective).has_pairs or self.segment_probability > 0


class FinetuningSettings(Settings, use_attribute_docstrings=True):
    """All that decides what a fine-tuning computes, for every arm; defaults are google's base."""

    learning_rates: tuple[Annotated[float, Field(ge=1e-8, le=1)], ...] = (1e-4,)
    """learning rates to try from the same start; the best on dev is kept"""
    epochs: float = Field(default=3.0, ge=0.01, le=1000)
    """passes through the training examples"""
    least_examples: int = Field(default=0, ge=0)
    """with few labels, raise the epochs (to 20 at most) until it goes through so many examples"""
    batch: int = Field(default=32, ge=1, le=65_536)
    """examples in one step (paper)"""
    warmup: float = Field(default=0.1, ge=0, le=1)
    """share of the steps (google)"""
    weight_decay: float = Field(default=0.0, ge=0, le=1)
    """weight decay, except of LayerNorm and biases (paper; google's code: 0.01)"""
    dropout: float | None = Field(default=None, ge=0, le=0.95)
    """dropout of hidden states and attention; none: as in the encoder's config.json"""
    layer_decay: float = Field(default=0.8, ge=0.1, le=1)
    """learning rate of a layer as a fraction of that above it: large has 0.9, others 0.8 (paper)"""
    frozen_share: float = Field(default=0.0, ge=0, lt=1)
    """share of the layers, the lowest, that keep their weights, as the embeddings then do"""
    clip: float = Field(default=1.0, ge=0, le=1000)
    """largest global norm of the gradient"""
    max_length: int | None = Field(default=None, ge=8, le=8192)
    """tokens of an input, to which texts are cut, and passages into overlapping windows; none: 128,
    for questions with passages 384, at most the encoder's trained length"""
    empty_windows: float | None = Field(default=1.0, ge=0, le=1000)
    """windows of passages without an answer to train on for each with one; none: all"""
    stride: int = Field(default=64, ge=0, le=8192)
    """tokens that windows of a passage share, at most half of those that the question leaves"""
    n_train: int | None = Field(default=500_000, ge=2)
    """training examples at most, chosen by a hash; none: all. The default takes published sets
    whole"""
    n_dev: int | None = Field(default=1000, ge=2)
    """dev examples at most, which choose learning rate and epoch; none: all"""
    n_test: int | None = Field(default=50_000, ge=2)
    """test examples at most; none: all"""
    selection: Literal["dev", "cross-validation"] = "dev"
    """what chooses settings, arms and the temperature: the dev split; or, for a corpus, five folds
    of the training examples: then it has no dev split, and the reviews of dev are test too"""
    sampling: Literal["balanced", "natural"] = "natural"
    """classes of the training examples; dev and test are natural unless balanced_test is set"""
    balanced_test: bool = False
    """balance dev and test too"""
    loss: Literal["cross_entropy", "focal"] = "cross_entropy"
    """focal: of classification, tokens and choice (Lin et al. 2017, arXiv 1708.02002)"""
    focal_alpha: tuple[Annotated[float, Field(ge=0, le=1)], ...] = ()
    """weight of each class in focal loss (eq. 5); one number: of the second of two classes, the
    first has the rest to 1; empty: none (eq. 4)"""
    focal_gamma: float = Field(default=2.0, ge=0, le=100)
    """γ of focal loss"""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: weight each class by its inverse frequency, in classification"""
    temperature: float = Field(default=2.0, ge=0.01, le=1000)
    """temperature of the teacher's and the student's probabilities in distillation"""
    soft_weight: float = Field(default=0.5, ge=0, le=1)
    """weight of the teacher's outputs in distillation; the labels have the rest"""
    hidden_weight: float = Field(default=0.0, ge=0, le=1_000_000)
    """weight of the teacher's hidden states in distillation (TinyBERT)"""
    attention_weight: float = Field(default=0.0, ge=0, le=1_000_000)
    """weight of the teacher's attention in distillation (TinyBERT)"""
    evaluations_per_epoch: int | None = Field(default=None, ge=1, le=1000)
    """evaluations on dev in an epoch; none: five in all, at most one an epoch"""
    precision: Precision = Field(default="auto", description=AUTO_PRECISION)

    @model_validator(mode="after")
    def _check_finetuningsettings(self) -> Self:
        require(self.learning_rates, "learning_rates is empty, give at least one")
        return self

    @classmethod
    def from_run(cls, run: Mapping[str, Any]) -> "FinetuningSettings":
        """Return the settings that a run.json holds, without those that are gone since."""
        settings: dict[str, Any] = {
            n: tuple(v) if isinstance(v, list) else v
            for n, v in run["settings"].items()
            if n in cls.model_fields
        }
        return cls(**settings)


class AdaptationConfig(Settings, use_attribute_docstrings=True):
    """Settings against forgetting, of a training that starts from loaded weights. The trunk is what
    was loaded and is fine-tuned later: embeddings and encoder, without heads.
    """

    trunk_learning_rate: float | None = Field(default=None, gt=0)
    """peak learning rate of the trunk; none: learning_rate, which the rest has"""
    origin_average: float = Field(default=0.0, ge=0, lt=1)
    """share of the loaded weights in the trunk that is written; the trained ones have the rest
    (WiSE-FT, Wortsman et al. 2022, arXiv 2109.01903)"""


class VocabularyConfig(Settings, use_attribute_docstrings=True):
    """Settings of a vocabulary."""

    size: int = Field(default=50_000, ge=MIN_VOCABULARY)
    """entries, special tokens included"""
    lower_case: bool = True
    """fold case and accents"""
    strip_accents: bool | None = None
    """remove accents; none: as `lower_case` says"""
    unused: int = Field(default=100, ge=0)
    """number of [unused…] entries to reserve"""
    sample_reviews: int = Field(default=1_000_000, ge=1)
    """train on about this many reviews"""


class PretrainConfig(Settings, use_attribute_docstrings=True):
    """Settings of a pre-training."""

    recipe: RecipeName
    """size of the model and length of its training"""
    steps: int | None = Field(default=None, ge=1)
    """optimizer steps, instead of the recipe's number"""
    settings: dict[str, str] = Field(default={})
    """what differs from the recipe: any field of `others`"""
    others: ClassVar = (PretrainingConfig, AdaptationConfig, Architecture)


class TrainingResources(Settings, use_attribute_docstrings=True):
    """Device, processes and threads of a training, which change nothing in its result."""

    device: PretrainingDevice = Field(
        default="auto", description=f"{DEVICE.documentation}, xla-spmd all of them"
    )
    processes: int | None = Field(default=None, ge=1, le=256)
    """processes on this machine that share each batch, one for each GPU, say; none: one"""
    threads: int | None = Field(default=None, ge=1)
    """CPU threads of each process; none: all cores, shared by the processes"""


ALL_CORES = TrainingResources()


class ContrastiveConfig(Settings, use_attribute_docstrings=True):
    """Settings of a contrastive adaptation; docs/results.md has what was tried."""

    seed: int = Field(default=0, ge=0, le=MAX_SEED)
    """decides the order of the pairs"""
    epochs: int | None = Field(default=None, ge=1, le=100)
    """passes; none: until 10,000 pairs were seen, at most 3"""
    batch: int = Field(default=128, ge=2, le=65_536)
    """pairs in one step"""
    device_batch: int | None = Field(default=None, ge=1)
    """pairs that a device holds at once: fewer take a third more time and change no negative"""
    learning_rate: float = Field(default=1e-4, gt=0, le=1)
    """peak, of AdamW"""
    warmup: float = Field(default=0.1, ge=0, le=1)
    """share of the steps"""
    weight_decay: float = Field(default=0.01, ge=0, le=1)
    """of matrices"""
    clip: float = Field(default=1.0, gt=0)
    """largest global norm of the gradient"""
    temperature: float = Field(default=0.05, gt=0, le=10)
    """the cosines are divided by it"""
    title_tokens: int = Field(default=24, ge=4, le=65_535)
    """of a title at most"""
    body_tokens: int = Field(default=64, ge=4, le=65_535)
    """of a body at most"""
    precision: Precision = Field(default="auto", description=AUTO_PRECISION)
    log_every: int = Field(default=10, ge=1)
    """steps"""
    keep_checkpoints: int = Field(default=1, ge=1)
    """number of checkpoints to keep"""


CONTRASTIVE_VERSION = 2
"""Version of the output; raise it when the numbers of a step change."""
FREE_CONTRASTIVE_SETTINGS = {"device_batch", "log_every", "keep_checkpoints"}
"""These change how the work is cut up or what is written, not what is learned."""
