"""Loads start weights into a model: a published encoder's, or those of an earlier training.

model/published reads them, whatever their kind, by the names of transformers' ELECTRA.
"""

import hashlib
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from beam_jobs.job.errors import UserError
from model import export
from model.config import Architecture
from model.pretraining.network import transformers_config
from model.pretraining.network.electra import Electra
from model.pretraining.network.masked_prediction import PretrainingModel
from model.published import architecture as published
from model.published import weights as published_weights
from model.published.vocabulary import fit_vocabulary, read_entries, read_words
from model.published.weights import Weights, find_bundle_prefix

COMPARED = ("layers", "heads", "hidden", "intermediate", "embedding", "layer_norm_eps")
"""Fields of Architecture in which two networks must agree."""


@dataclass(frozen=True)
class Origin:
    """The folders that start weights are read from."""

    main: Path  # discriminator, or an MLM model, or google's checkpoint with both networks
    generator: Path | None = None

    def read_settings(self) -> dict[str, str]:
        """Return the shape in the folders' config.json as settings of Architecture; google's
        checkpoints have none.

        Raise UserError for a network that has no place in ours.
        """
        if find_bundle_prefix(self.main):
            return {}
        shape = self._read_shape("--start-from", self.main)
        settings = {name: str(value) for name, value in asdict(shape).items()}
        del settings["generator_multiplier"], settings["generator_layers"]
        if self.generator and not find_bundle_prefix(self.generator):
            narrow = self._read_shape("--start-generator-from", self.generator)
            settings["generator_multiplier"] = str(narrow.hidden / shape.hidden)
            is_as_deep = narrow.layers == shape.layers
            settings["generator_layers"] = "0" if is_as_deep else str(narrow.layers)
        return settings

    def _read_shape(self, option: str, folder: Path) -> Architecture:
        def make_error(text: str) -> UserError:
            return UserError(f"{option} {folder}: {text}")

        return published.read_architecture(published.read_config(folder, make_error), make_error)

    def read_trained_length(self, shape: Architecture) -> int:
        """Return how many positions were trained; a folder that does not say trained all."""
        return transformers_config.read_trained_length(self.main) or shape.max_positions

    def read_start(self) -> dict[str, Any] | None:
        """Return how the weights were drawn that the training of these began with, if known."""
        return transformers_config.read_start(self.main)

    def compute_fingerprint(self) -> str:
        """Return a hash of the weight files' names, sizes and first MiB."""
        digest = hashlib.sha256()
        for path in (self.main, self.generator):
            for file in sorted(_list_weight_files(path)) if path else []:
                digest.update(
                    f"{file.name} {file.stat().st_size} ".encode() + _read_beginning(file)
                )
        return digest.hexdigest()


def _read_beginning(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(1 << 20)


def _list_weight_files(path: Path) -> list[Path]:
    if path.is_dir():
        return [
            *path.glob("model*.safetensors"),
            *path.glob("pytorch_model.bin"),
            *path.glob("*.index"),
            *path.glob("*.data-*"),
        ]
    return list(path.parent.glob(f"{path.name}.*"))


@dataclass(frozen=True)
class Source:
    """One network's weights on disk, and which of ours they are for."""

    option: str
    folder: Path
    role: transformers_config.Role
    trunk: str  # our name of the network
    shape: Architecture
    is_cut: bool = False  # whether the network takes only the first layers there

    def make_error(self, text: str) -> UserError:
        return UserError(f"{self.option} {self.folder}: {text}")


def load_weights(
    model: PretrainingModel, shape: Architecture, origin: Origin, vocabulary: Path
) -> list[str]:
    """Copy start weights into the model; return the names of those that keep their initial values.

    Raise UserError if a trunk is incomplete or of another shape.
    """
    loaded: dict[str, Tensor] = {}
    for source in _list_sources(model, shape, origin):
        weights = _read_weights(source)
        place = source.folder if source.folder.is_dir() else source.folder.parent
        old, new = read_entries(place, source.make_error), read_words(vocabulary / "vocab.txt")
        fitted = fit_vocabulary(weights, old, new, source.make_error)
        ours = _rename_weights(model, source, fitted)
        _check_shape(source, weights)
        _check_trunk(model, source, ours)
        fresh = {name: tensor for name, tensor in ours.items() if name not in loaded}
        _copy_weights(model, fresh, source)
        loaded |= fresh
    rows = len(loaded["embeddings.position"])
    left = [f"embeddings.position[{rows}:]"] if rows < len(model.embeddings.position) else []
    return left + [name for name, _ in model.named_parameters() if name not in loaded]


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
    main = partial(Source, "--start-from", origin.main)
    if not isinstance(model, Electra):
        roles: list[transformers_config.Role] = ["generator"]
        if find_bundle_prefix(origin.main):
            roles.append("discriminator")
        return [main(role, "encoder", shape) for role in roles]
    sources = [main("discriminator", "discriminator", shape)]
    if origin.generator:
        narrow = shape.derive_generator()
        sources.append(
            Source("--start-generator-from", origin.generator, "generator", "generator", narrow)
        )
    elif find_bundle_prefix(origin.main):
        sources.append(main("generator", "generator", shape.derive_generator()))
    elif shape.has_wide_generator:
        sources.append(main("generator", "generator", shape.derive_generator(), is_cut=True))
    return sources


def _read_weights(source: Source) -> Weights:
    prefix = find_bundle_prefix(source.folder)
    if prefix:
        return published_weights.read_google_weights(prefix, source.role)
    config = published.read_config(source.folder, source.make_error)
    return published_weights.read_weights(source.folder, config, source.make_error)


def _rename_weights(model: PretrainingModel, source: Source, weights: Weights) -> Weights:
    """Return the weights by our names."""
    encoder = getattr(model, source.trunk)
    mapping = export.map_names(
        source.role, len(encoder.layers), hasattr(encoder.project, "weight"), source.trunk
    )
    ours = export.convert_from_transformers(weights, mapping)
    if not ours:
        raise source.make_error("no ELECTRA weights there")
    return ours


def _check_shape(source: Source, weights: Weights) -> None:
    """Raise UserError if layers, widths or heads differ.

    config.json names them; google's checkpoints have none, so the layers come from the weights.
    """
    theirs: dict[str, float] = {}
    if not find_bundle_prefix(source.folder):
        config = published.read_config(source.folder, source.make_error)
        shape = published.read_architecture(config, source.make_error)
        theirs = {name: getattr(shape, name) for name in COMPARED}
    theirs["layers"] = published_weights.count_layers(weights)
    if source.is_cut:
        del theirs["layers"]
    differing = {name: n for name, n in theirs.items() if n != getattr(source.shape, name)}
    if differing:
        there = ", ".join(f"{name}={number}" for name, number in differing.items())
        here = ", ".join(f"{name}={getattr(source.shape, name)}" for name in differing)
        own = "the generator" if source.trunk == "generator" else "the model"
        raise source.make_error(
            f"{there} there, {here} in {own} here; "
            "choose the preset, or --set, that it was made with"
        )


def _check_trunk(model: PretrainingModel, source: Source, weights: Weights) -> None:
    """Raise UserError if a weight of the embeddings or the encoder is missing."""
    needed = [
        n for n, _ in model.named_parameters() if n.startswith(("embeddings.", f"{source.trunk}."))
    ]
    missing = [name for name in needed if name not in weights]
    if missing:
        raise source.make_error(
            f"{len(missing)} of {len(needed)} weights are missing there, the first is {missing[0]}"
        )


def _copy_weights(model: PretrainingModel, weights: Weights, source: Source) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name not in weights:
                continue
            tensor = weights[name]
            if name == "embeddings.position" and tensor.shape[1:] == parameter.shape[1:]:
                rows = min(len(tensor), len(parameter))
                parameter[:rows] = tensor[:rows]
            elif tensor.shape != parameter.shape:
                raise source.make_error(
                    f"{name} is {list(tensor.shape)} there and {list(parameter.shape)} here; "
                    "choose the preset, or --set layers, hidden, intermediate, embedding … "
                    "as in its config.json"
                )
            else:
                parameter.copy_(tensor)
