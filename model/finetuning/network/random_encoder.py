"""Makes a network whose encoder is untrained: as its architecture's own pre-training began, or as
transformers draws it.
"""

from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from model.pretraining.network.random_start import draw_start_weights
from model.pretraining.network.transformers_config import START


def build_random_network(auto: Any, config: Any, initializer_range: float | None) -> nn.Module:
    """Return the network of one of transformers' AutoModel classes; torch's seed draws it.

    The head is drawn by transformers, with the `initializer_range` of `config`. So is the encoder
    where `config` does not say how its pre-training began, or with another `initializer_range`
    where that is given.
    """
    model: Any = auto.from_config(config, dtype=torch.float32)
    if initializer_range is not None:
        model.base_model.load_state_dict(_draw_as_transformers(auto, config, initializer_range))
    elif getattr(config, START, None):
        weights = draw_start_weights(config.to_dict(), torch.initial_seed())
        ours = {name.removeprefix("electra."): tensor for name, tensor in weights.items()}
        model.base_model.load_state_dict(ours)
    network: nn.Module = model
    return network


def _draw_as_transformers(auto: Any, config: Any, initializer_range: float) -> dict[str, Tensor]:
    """Return an encoder's weights, drawn as they would be if config.json said this range."""
    other = copy(config)
    other.initializer_range = initializer_range
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch.initial_seed())
        network: Any = auto.from_config(other, dtype=torch.float32)
    weights: dict[str, Tensor] = network.base_model.state_dict()
    return weights
