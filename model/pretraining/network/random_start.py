"""Draws the weights that a pre-training with random weights begins with, for a folder's shape."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from model.config import PretrainingConfig
from model.encoders import export
from model.encoders.config import START, Role, read_own_architecture
from model.encoders.names import map_names
from model.pretraining.network.electra import Electra
from model.pretraining.network.encoder import initialize_weights
from model.pretraining.network.mlm import MaskedLanguageModel


def draw_start_weights(config: Mapping[str, Any], seed: int) -> dict[str, Tensor]:
    """Return the encoder's weights before the first step of a pre-training with this seed, by
    transformers' names; `config` is the content of a config.json that says how they are drawn.
    """
    start, architecture = config[START], read_own_architecture(config)
    kind = Electra if "generator_multiplier" in start else MaskedLanguageModel
    training = PretrainingConfig(steps=1, batch=1, learning_rate=1.0)
    with torch.random.fork_rng(devices=[]):  # torch's own start weights are drawn and replaced
        model = kind(config["vocab_size"], architecture, training)
    initialize_weights(model, seed, start["initializer_range"])
    has_project = architecture.embedding != architecture.hidden
    role: Role = "discriminator" if kind is Electra else "generator"
    names = map_names(role, architecture.layers, has_project, model.trunk_name)
    weights = export.convert_to_transformers(dict(model.named_parameters()), names)
    if not start["has_segments"]:
        export.copy_type_row(weights)
    return {name: tensor for name, tensor in weights.items() if name.startswith("electra.")}
