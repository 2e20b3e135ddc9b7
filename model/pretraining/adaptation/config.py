"""What can be set against forgetting: each field with its meaning, unit, bounds and source."""

from pydantic import Field

from beam_jobs.core.settings import Settings


class AdaptationConfig(Settings):
    """What a training that starts from loaded weights (--start-from) does against forgetting.

    The trunk is what was loaded and is fine-tuned later: embeddings and encoder, without heads.
    model/pretraining/adaptation/recipe.py has the defaults for published encoders.
    """

    head_steps: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of the steps, the first ones, in which the trunk is frozen and all "
        "else learns (Kumar et al. 2022, arXiv 2202.10054)",
    )
    head_tokens: int = Field(
        default=0,
        ge=0,
        description="end that share after so many tokens, where the run is longer; 0: no such "
        "end. A --budget in time does not know its tokens and goes by head_steps alone",
    )
    trunk_learning_rate: float = Field(
        default=0.0, ge=0, description="peak of the trunk, all else has learning_rate; 0: the same"
    )
    origin_average: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of the loaded weights in the trunk that is written, the trained ones "
        "have the rest (WiSE-FT, Wortsman et al. 2022, arXiv 2109.01903)",
    )
    probe_train: int = Field(
        default=400,
        ge=4,
        description="labelled reviews that a probe learns from, half of them positive",
    )
    probe_dev: int = Field(
        default=1000,
        ge=2,
        description="dev reviews that a probe is measured on, half of them positive",
    )
    write_last: bool = Field(
        default=False,
        description="write the trained weights even where the probe finds them worse than the "
        "loaded ones",
    )

    def shorten_head_steps(self, tokens: int) -> "AdaptationConfig":
        """Return the same for a run of so many tokens, with `head_steps` within `head_tokens`."""
        share = self.head_tokens / tokens if self.head_tokens else 1.0
        return self.replace(head_steps=min(self.head_steps, share))
