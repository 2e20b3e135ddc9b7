"""Loads start weights, a published encoder's or of an earlier training, by transformers' names."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.special_tokens import count_rows
from amazon_electra.beam_jobs.core.storage import hash_file
from amazon_electra.model.architecture import Architecture
from amazon_electra.model.config import PretrainingConfig
from amazon_electra.model.encoders import export
from amazon_electra.model.encoders.config import (
    START,
    Role,
    find_kind,
    read_architecture,
    read_config,
    read_own_architecture,
)
from amazon_electra.model.encoders.places import name_place
from amazon_electra.model.encoders.vocabulary import (
    cut_padding,
    load_published_tokenizer,
    read_entries,
)
from amazon_electra.model.encoders.weight_mapping import map_names
from amazon_electra.model.encoders.weights import (
    check_size,
    count_layers,
    list_tensor_files,
    load_masked_lm,
    read_weights,
)
from amazon_electra.model.pretraining.input.sequences import Shards
from amazon_electra.model.pretraining.network.encoder import initialize_weights
from amazon_electra.model.pretraining.network.masked_prediction import OwnModel
from amazon_electra.model.pretraining.network.transformers_mlm import TransformersMlm
from amazon_electra.model.pretraining.objectives import find_objective

COMPARED = ("layers", "heads", "hidden", "intermediate", "embedding", "layer_norm_eps")
"""Fields of Architecture in which two networks must agree."""


@dataclass(frozen=True)
class Origin:
    """The folders that start weights are read from."""

    main: Path  # discriminator, or an MLM model
    generator: Path | None = None

    def read_settings(self) -> dict[str, str]:
        """Return the shape in the folders' config.json as settings of Architecture."""
        shapes = []
        for folder in (self.main, *([self.generator] if self.generator else [])):
            with name_place("start_from", folder):
                shapes.append(read_architecture(read_config(folder)))
        settings = {name: str(value) for name, value in shapes[0].model_dump().items()}
        del settings["generator_multiplier"], settings["generator_layers"]
        for narrow in shapes[1:]:
            settings["generator_multiplier"] = str(narrow.hidden / shapes[0].hidden)
            is_as_deep = narrow.layers == shapes[0].layers
            settings["generator_layers"] = "none" if is_as_deep else str(narrow.layers)
        return settings

    @property
    def is_ours(self) -> bool:
        with name_place("start_from", self.main):
            return find_kind(read_config(self.main)) is not None

    def load_module(
        self, config: PretrainingConfig, dtype: torch.dtype, shards: Shards
    ) -> tuple[TransformersMlm, list[str]]:
        """Return transformers' module with the loaded weights, and the names of its new ones."""
        with name_place("start_from", self.main):
            is_plain = config.objective == "mlm" and not config.has_segments
            require(is_plain, "transformers' own module takes objective=mlm, without segments")
            network, lost = load_masked_lm(self.main, config.seed)
            tokenizer = load_published_tokenizer(self.main)
            check_size(network, count_rows(tokenizer))
            of_shards = Tokenizer.from_file(str(shards.vocabulary / "tokenizer.json"))
            is_same = of_shards.get_vocab() == tokenizer.get_vocab()
            require(is_same, "the shards were made with another tokenizer")
        return TransformersMlm(network, config, dtype, shards.max_length), lost

    def compute_fingerprint(self) -> str:
        """Return a hash of the weight files' names and whole content."""
        digest = hashlib.sha256()
        folders = [self.main, *([self.generator] if self.generator else [])]
        for file in (file for folder in folders for file in list_tensor_files(folder)):
            digest.update(f"{file.name} {hash_file(file)} ".encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class Source:
    """One network's weights on disk, and which of ours they are for."""

    folder: Path
    role: Role
    trunk: str  # our name of the network
    shape: Architecture
    is_cut: bool = False  # whether the network takes only the first layers there


def load_weights(
    model: OwnModel, shape: Architecture, origin: Origin, vocabulary: Path
) -> list[str]:
    """Copy start weights into the model; return the names of those that stay as they were."""
    objective = find_objective(model.config.objective)
    sources = [Source(origin.main, objective.trunk_role, model.trunk_name, shape)]
    if objective.has_generator:
        narrow = shape.derive_generator()
        if origin.generator:
            sources.append(Source(origin.generator, "generator", "generator", narrow))
        elif shape.has_wide_generator:
            sources.append(Source(origin.main, "generator", "generator", narrow, is_cut=True))
    loaded: set[str] = set()
    left: list[str] = []
    for source in sources:  # the first one wins where two have a weight
        with name_place("start_from", source.folder):
            left += _load_network(model, source, vocabulary, loaded)
    return left + [name for name, _ in model.named_parameters() if name not in loaded]


def _load_network(model: OwnModel, source: Source, vocabulary: Path, loaded: set[str]) -> list[str]:
    """Copy what is not `loaded` yet and add it there; return positions without a vector."""
    config, parameters = read_config(source.folder), dict(model.named_parameters())
    weights, encoder = read_weights(source.folder, config), getattr(model, source.trunk)
    entries = read_entries(source.folder)
    require(entries == read_entries(vocabulary), "the shards were made with another vocabulary")
    has_project = hasattr(encoder.project, "weight")
    names = map_names(source.role, len(encoder.layers), has_project, source.trunk)
    ours = export.convert_from_transformers(cut_padding(weights, entries), names)
    there, here = (
        {name: getattr(shape, name) for name in COMPARED}
        for shape in (read_architecture(config), source.shape)
    )
    there["layers"] = here["layers"] if source.is_cut else count_layers(weights)
    left = []
    for name, parameter in parameters.items():
        is_needed = name.startswith(("embeddings.", f"{source.trunk}."))
        if (name in ours or is_needed) and name not in loaded:
            there[name] = list(ours[name].shape) if name in ours else "missing"
            here[name] = list(parameter.shape)
    position = "embeddings.position"
    if position in there and there[position][1:] == here[position][1:]:
        rows = min(len(ours[position]), len(parameters[position]))
        left = [f"{position}[{rows}:]"] if rows < len(parameters[position]) else []
        there[position] = here[position]
    for name, own in here.items():
        why = f"{name} is {there[name]} there and {own} here: take its recipe"
        require(there[name] == own, why)
    for name in here.keys() & ours.keys():
        rows = min(len(ours[name]), len(parameters[name]))
        parameters[name].detach()[:rows] = ours[name][:rows]
    loaded.update(ours)
    return left


def draw_start_weights(config: Mapping[str, Any], seed: int) -> dict[str, Tensor]:
    """Return the encoder's weights before step 1, by transformers' names; `config` says how."""
    start, architecture = config[START], read_own_architecture(config)
    name = start.get("objective") or ("electra" if "generator_multiplier" in start else "mlm")
    objective = find_objective(name)
    kind = objective.load_network()
    training = PretrainingConfig(steps=1, batch=1, learning_rate=1.0, objective=name)
    with torch.random.fork_rng(devices=[]):  # torch's own start weights are drawn and replaced
        model = kind(config["vocab_size"], architecture, training)
    initialize_weights(model, seed, start["initializer_range"])
    has_project = architecture.embedding != architecture.hidden
    names = map_names(objective.trunk_role, architecture.layers, has_project, model.trunk_name)
    weights = export.convert_to_transformers(dict(model.named_parameters()), names)
    if not start["has_segments"]:
        export.copy_type_row(weights)
    return {name: tensor for name, tensor in weights.items() if name.startswith("electra.")}
