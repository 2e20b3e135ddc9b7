"""Loads start weights into a model: a published encoder's, or those of an earlier training.

model/encoders reads them, whatever their kind, by the names of transformers' ELECTRA.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import hash_file
from amazon_electra.beam_jobs.core.special_tokens import count_rows
from amazon_electra.model.architecture import Architecture
from amazon_electra.model.config import PretrainingConfig
from amazon_electra.model.encoders import config as encoder_config
from amazon_electra.model.encoders import export
from amazon_electra.model.encoders.config import START, Role, read_own_architecture
from amazon_electra.model.encoders.vocabulary import (
    fit_vocabulary,
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
from amazon_electra.model.pretraining.network.masked_prediction import OwnModel, PretrainingModel
from amazon_electra.model.pretraining.network.transformers_mlm import TransformersMlm
from amazon_electra.model.pretraining.objectives import find_objective

COMPARED = ("layers", "heads", "hidden", "intermediate", "embedding", "layer_norm_eps")
"""Fields of Architecture in which two networks must agree."""


def _make_error(field: str, folder: Path, text: str) -> UserError:
    return UserError(text, field, folder)


@dataclass(frozen=True)
class Origin:
    """The folders that start weights are read from."""

    main: Path  # discriminator, or an MLM model
    generator: Path | None = None

    def read_settings(self) -> dict[str, str]:
        """Return the shape in the folders' config.json as settings of Architecture.

        Raise UserError for a network that has no place in ours.
        """
        shape = self._read_shape("start_from", self.main)
        settings = {name: str(value) for name, value in shape.model_dump().items()}
        del settings["generator_multiplier"], settings["generator_layers"]
        if self.generator:
            narrow = self._read_shape("start_generator_from", self.generator)
            settings["generator_multiplier"] = str(narrow.hidden / shape.hidden)
            is_as_deep = narrow.layers == shape.layers
            settings["generator_layers"] = "none" if is_as_deep else str(narrow.layers)
        return settings

    def _read_shape(self, field: str, folder: Path) -> Architecture:
        fail = partial(_make_error, field, folder)
        return encoder_config.read_architecture(encoder_config.read_config(folder, fail), fail)

    @property
    def is_ours(self) -> bool:
        """Return whether our encoder holds the network, rather than transformers' own module."""
        fail = partial(_make_error, "start_from", self.main)
        return (
            encoder_config.find_kind(encoder_config.read_config(self.main, fail), fail) is not None
        )

    def load_module(
        self, config: PretrainingConfig, dtype: torch.dtype, shards: Shards
    ) -> tuple[TransformersMlm, list[str]]:
        """Return transformers' module with the loaded weights, and the names of those of its head
        that are new; UserError where the shards were made with another tokenizer.
        """
        fail = partial(_make_error, "start_from", self.main)
        if config.objective != "mlm" or config.has_segments:
            raise fail("transformers' own module is trained with objective=mlm, without segments")
        network, lost = load_masked_lm(self.main, fail, config.seed)
        tokenizer = load_published_tokenizer(self.main, fail)
        check_size(network, count_rows(tokenizer), fail)
        of_shards = Tokenizer.from_file(str(shards.vocabulary / "tokenizer.json"))
        if of_shards.get_vocab() != tokenizer.get_vocab():
            raise fail(
                "the shards were made with another tokenizer, and its vectors are those of its own"
            )
        return TransformersMlm(network, config, dtype, shards.max_length), lost

    def compute_fingerprint(self) -> str:
        """Return a hash of the weight files' names and whole content."""
        digest = hashlib.sha256()
        files = list_tensor_files(self.main, partial(_make_error, "start_from", self.main))
        if self.generator:
            fail = partial(_make_error, "start_generator_from", self.generator)
            files += list_tensor_files(self.generator, fail)
        for file in files:
            digest.update(f"{file.name} {hash_file(file)} ".encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class Source:
    """One network's weights on disk, and which of ours they are for."""

    field: str
    folder: Path
    role: Role
    trunk: str  # our name of the network
    shape: Architecture
    is_cut: bool = False  # whether the network takes only the first layers there

    def make_error(self, text: str) -> UserError:
        return _make_error(self.field, self.folder, text)


def load_weights(
    model: OwnModel, shape: Architecture, origin: Origin, vocabulary: Path
) -> list[str]:
    """Copy start weights into the model; return the names of those that keep their initial values.

    Raise UserError if a trunk is incomplete or of another shape.
    """
    loaded: set[str] = set()
    left: list[str] = []
    parameters = dict(model.named_parameters())
    for source in _list_sources(model, shape, origin):
        fail = source.make_error
        config = encoder_config.read_config(source.folder, fail)
        weights = read_weights(source.folder, config, fail)
        old, new = read_entries(source.folder, fail), read_entries(vocabulary, fail)
        encoder = getattr(model, source.trunk)
        has_project = hasattr(encoder.project, "weight")
        names = map_names(source.role, len(encoder.layers), has_project, source.trunk)
        ours = export.convert_from_transformers(fit_vocabulary(weights, old, new, fail), names)

        architecture = encoder_config.read_architecture(config, fail)
        theirs: dict[str, float] = {name: getattr(architecture, name) for name in COMPARED}
        theirs["layers"] = count_layers(weights)
        if source.is_cut:
            del theirs["layers"]
        differing = {name: n for name, n in theirs.items() if n != getattr(source.shape, name)}
        if differing:
            there = ", ".join(f"{name}={number}" for name, number in differing.items())
            here = ", ".join(f"{name}={getattr(source.shape, name)}" for name in differing)
            own = "the generator" if source.trunk == "generator" else "the model"
            raise fail(
                f"{there} there, {here} in {own} here; "
                "choose the recipe and settings that it was made with"
            )
        needed = [n for n in parameters if n.startswith(("embeddings.", f"{source.trunk}."))]
        if missing := [name for name in needed if name not in ours]:
            raise fail(
                f"{len(missing)} of {len(needed)} weights are missing there, the first is "
                f"{missing[0]}"
            )
        for name, parameter in parameters.items():
            if name not in ours or name in loaded:
                continue
            tensor, place = ours[name], parameter.detach()
            if name == "embeddings.position" and tensor.shape[1:] == place.shape[1:]:
                rows = min(len(tensor), len(place))
                left = [f"{name}[{rows}:]"] if rows < len(place) else []
                tensor, place = tensor[:rows], place[:rows]
            if tensor.shape != place.shape:
                raise fail(
                    f"{name} is {list(tensor.shape)} there and {list(place.shape)} here; "
                    "choose the recipe, or `layers`, `hidden`, intermediate, embedding … "
                    "as in its config.json"
                )
            place.copy_(tensor)
        loaded |= ours.keys()
    return left + [name for name in parameters if name not in loaded]


def describe_origin(
    model: PretrainingModel, shape: Architecture, origin: Origin, initial: list[str]
) -> str:
    """Return one line for the log; `initial` is what load_weights returned."""
    parts = dict.fromkeys(name if "[" in name else name.split(".")[0] for name in initial)
    cut = [source.shape.layers for source in _list_sources(model, shape, origin) if source.is_cut]
    return (
        f"starting from {origin.main}"
        + (f"; the generator is made of {cut[0]} of its {shape.layers} layers" if cut else "")
        + (f"; newly initialized: {', '.join(parts)}" if parts else "")
    )


def _list_sources(model: PretrainingModel, shape: Architecture, origin: Origin) -> list[Source]:
    """Return the sources; the first one wins where two have a weight."""
    main = partial(Source, "start_from", origin.main)
    objective = find_objective(model.config.objective)
    sources = [main(objective.trunk_role, model.trunk_name, shape)]
    if not objective.has_generator:
        return sources
    if origin.generator:
        narrow = shape.derive_generator()
        sources.append(
            Source("start_generator_from", origin.generator, "generator", "generator", narrow)
        )
    elif shape.has_wide_generator:
        sources.append(main("generator", "generator", shape.derive_generator(), is_cut=True))
    return sources


def draw_start_weights(config: Mapping[str, Any], seed: int) -> dict[str, Tensor]:
    """Return the encoder's weights before the first step of a pre-training with this seed, by
    transformers' names; `config` is the content of a config.json that says how they are drawn.
    """
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
