"""What can be set against forgetting: each field with its meaning, unit, bounds and source.

Like model/config.py it imports the standard library alone.
"""

from dataclasses import dataclass, replace

from beam_jobs.job.settings import check_settings, setting

STARTED = {"--start-from": ("given",)}
PROBED = {"--probe": ("given",)}
"""What settings need to be read at all."""


@dataclass(frozen=True)
class AdaptationConfig:
    """What a training that starts from loaded weights (--start-from) does against forgetting.

    The trunk is what was loaded and is fine-tuned later: embeddings and encoder, without heads.
    model/pretraining/adaptation/recipe.py has the defaults for published encoders.
    """

    head_steps: float = setting(
        "share of the steps, the first ones, in which the trunk is frozen and all else learns "
        "(Kumar et al. 2022, arXiv 2202.10054)",
        0.0,
        ge=0,
        lt=1,
        needs=STARTED,
    )
    head_tokens: int = setting(
        "end that share after so many tokens, where the run is longer; 0: no such end. A --budget "
        "in time does not know its tokens and goes by head_steps alone",
        0,
        ge=0,
        needs=STARTED,
    )
    trunk_learning_rate: float = setting(
        "peak of the trunk, all else has learning_rate; 0: the same", 0.0, ge=0, needs=STARTED
    )
    origin_average: float = setting(
        "share of the loaded weights in the trunk that is written, the trained ones have the rest "
        "(WiSE-FT, Wortsman et al. 2022, arXiv 2109.01903)",
        0.0,
        ge=0,
        lt=1,
        needs=STARTED,
    )
    probe_train: int = setting(
        "labelled reviews that a probe learns from, half of them positive", 400, ge=4, needs=PROBED
    )
    probe_dev: int = setting(
        "dev reviews that a probe is measured on, half of them positive", 1000, ge=2, needs=PROBED
    )
    write_last: bool = setting(
        "write the trained weights even where the probe finds them worse than the loaded ones",
        False,
        needs=PROBED,
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def shorten_head_steps(self, tokens: int) -> "AdaptationConfig":
        """Return the same for a run of so many tokens, with `head_steps` within `head_tokens`."""
        share = self.head_tokens / tokens if self.head_tokens else 1.0
        return replace(self, head_steps=min(self.head_steps, share))
