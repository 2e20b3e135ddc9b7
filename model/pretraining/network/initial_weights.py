"""Loads start weights from a transformers folder or google's TensorFlow checkpoint.

If its vocabulary differs from ours, the entries of both keep their vectors, and each new one begins
as the mean of the pieces into which the old vocabulary would have cut it.
"""

import hashlib
import json
import pickle
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from beam_jobs.job.errors import UserError
from model import export
from model.config import Architecture
from model.pretraining.network import transformers_config
from model.pretraining.network.electra import Electra
from model.pretraining.network.masked_prediction import PretrainingModel
from model.pretraining.network.tensor_bundle import read_bundle

BY_ENTRY = {  # weights with one row per vocabulary entry
    "electra.embeddings.word_embeddings.weight",
    "generator_lm_head.bias",
}
IN_CONFIG = {  # fields of Architecture in transformers' config.json
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "hidden": "hidden_size",
    "intermediate": "intermediate_size",
    "embedding": "embedding_size",
}
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Origin:
    """The folders that start weights are read from."""

    main: Path  # discriminator, or an MLM model, or google's checkpoint with both networks
    generator: Path | None = None

    def read_trained_length(self, shape: Architecture) -> int:
        """Return how many positions were trained; a folder that does not say trained all."""
        return transformers_config.read_trained_length(self.main) or shape.max_positions

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
        fitted = _fit_vocabulary(weights, source, _read_words(vocabulary / "vocab.txt"))
        ours = _rename_weights(model, source, fitted)
        _check_shape(source, weights)
        _check_trunk(model, source, ours)
        fresh = {name: tensor for name, tensor in ours.items() if name not in loaded}
        _copy_weights(model, fresh, source)
        loaded |= fresh
    rows = len(loaded["embeddings.position"])
    left = [f"embeddings.position[{rows}:]"] if rows < len(model.embeddings.position) else []
    return left + [name for name, _ in model.named_parameters() if name not in loaded]


def describe_origin(origin: Origin, initial: list[str]) -> str:
    """Return one line for the log; `initial` is what load_weights returned."""
    parts = dict.fromkeys(name if "[" in name else name.split(".")[0] for name in initial)
    return f"starting from {origin.main}" + (
        f"; newly initialized: {', '.join(parts)}" if parts else ""
    )


def _list_sources(model: PretrainingModel, shape: Architecture, origin: Origin) -> list[Source]:
    """Return the sources; the first one wins where two have a weight."""
    main = partial(Source, "--start-from", origin.main)
    if not isinstance(model, Electra):
        return [main("generator", "encoder", shape), main("discriminator", "encoder", shape)]
    sources = [main("discriminator", "discriminator", shape)]
    if origin.generator:
        narrow = shape.derive_generator()
        sources.append(
            Source("--start-generator-from", origin.generator, "generator", "generator", narrow)
        )
    elif _find_bundle_prefix(origin.main):
        sources.append(main("generator", "generator", shape.derive_generator()))
    return sources


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
    config = {} if _find_bundle_prefix(source.folder) else _read_config(source)
    theirs = {ours: config[name] for ours, name in IN_CONFIG.items() if name in config}
    numbers = [
        int(match[1])
        for name in weights
        if (match := re.match(r"electra\.encoder\.layer\.(\d+)\.", name))
    ]
    theirs["layers"] = max(numbers, default=-1) + 1
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


def _read_config(source: Source) -> dict[str, Any]:
    path = source.folder / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise source.make_error("put its config.json beside the weights") from None
    except ValueError as error:
        raise source.make_error(f"config.json is damaged ({error}); copy it again") from None
    return config


def _read_weights(source: Source) -> Weights:
    """Return the weights by transformers' names."""
    prefix = _find_bundle_prefix(source.folder)
    if prefix:
        return read_google_weights(prefix, source.role)
    files = sorted(source.folder.glob("model*.safetensors")) or sorted(
        source.folder.glob("pytorch_model.bin")
    )
    if not files:
        raise source.make_error(
            "neither model.safetensors nor a TensorFlow checkpoint (*.index) there"
        )
    weights: Weights = {}
    for file in files:
        try:
            tensors = load_file(file) if file.suffix == ".safetensors" else _load_pickled(file)
        except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError) as error:
            raise source.make_error(f"{file.name} is damaged ({error}); copy it again") from None
        weights |= {name: tensor.float() for name, tensor in tensors.items()}
    return weights


def _load_pickled(file: Path) -> Weights:
    weights: Weights = torch.load(file, map_location="cpu", weights_only=True)
    return weights


def _find_bundle_prefix(path: Path) -> Path | None:
    """Return the prefix of the newest TensorFlow checkpoint at a path, or None."""
    if not path.is_dir():
        return path if path.with_name(path.name + ".index").exists() else None
    indexes = sorted(
        path.glob("*.index"), key=lambda file: [int(n) for n in re.findall(r"\d+", file.name)]
    )
    return indexes[-1].with_suffix("") if indexes else None


def read_google_weights(prefix: Path, role: transformers_config.Role) -> Weights:
    """Return google's variables by transformers' names.

    The two networks share the tables of `electra/embeddings`.
    """
    own = "generator" if role == "generator" else "electra"
    weights: Weights = {}
    for name, array in read_bundle(prefix).items():
        if "/adam_" in name or name == "global_step":
            continue
        shared = name.startswith("electra/embeddings/")
        if not (shared or name.startswith((f"{own}/", f"{role}_predictions/"))):
            continue
        tensor = torch.from_numpy(array.copy()).float()
        if name.endswith("/kernel"):
            tensor = tensor.t().contiguous()
        weights[_translate_google_name(name, own)] = tensor
    return weights


def _translate_google_name(name: str, own: str) -> str:
    name = re.sub(rf"^{own}/", "electra/", name)
    for theirs, ours in (
        ("discriminator_predictions/dense_1/", "discriminator_predictions/dense_prediction/"),
        ("generator_predictions/output_bias", "generator_lm_head/bias"),
        ("/kernel", "/weight"),
        ("/gamma", "/weight"),
        ("/beta", "/bias"),
        ("_embeddings", "_embeddings/weight"),
    ):
        name = name.replace(theirs, ours)
    return re.sub(r"/layer_(\d+)/", r"/layer/\1/", name).replace("/", ".")


def _read_vocabulary(source: Source) -> list[str]:
    folder = source.folder if source.folder.is_dir() else source.folder.parent
    if not (folder / "vocab.txt").exists():
        raise source.make_error("put its vocab.txt beside the weights")
    return _read_words(folder / "vocab.txt")


def _read_words(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def _fit_vocabulary(weights: Weights, source: Source, new: list[str]) -> Weights:
    old = _read_vocabulary(source)
    if old == new:
        return weights
    entries = min((len(t) for name, t in weights.items() if name in BY_ENTRY), default=len(old))
    if entries < len(old) or "[UNK]" not in old:
        raise source.make_error(
            f"its vocab.txt ({len(old)} lines) is not that of the weights ({entries} entries)"
        )
    rows = map_vocabulary(old, new)
    return {
        name: _average_rows(tensor, rows) if name in BY_ENTRY else tensor
        for name, tensor in weights.items()
    }


def map_vocabulary(old: list[str], new: list[str]) -> list[list[int]]:
    """Return for each new entry the old ids it is the mean of.

    These are its own id, or those of its pieces, or that of [UNK].
    """
    ids = {token: i for i, token in enumerate(old)}
    unknown = [ids["[UNK]"]]
    return [[ids[t]] if t in ids else split_into_pieces(t, ids) or unknown for t in new]


def split_into_pieces(token: str, ids: dict[str, int]) -> list[int]:
    """Return the ids of a word's pieces, longest match first (WordPiece); [] if none fits."""
    continues = token.startswith("##")
    rest = token.removeprefix("##")
    found: list[int] = []
    while rest:
        prefix = "##" if continues or found else ""
        size = next((n for n in range(len(rest), 0, -1) if prefix + rest[:n] in ids), 0)
        if not size:
            return []
        found.append(ids[prefix + rest[:size]])
        rest = rest[size:]
    return found


def _average_rows(tensor: Tensor, rows: list[list[int]]) -> Tensor:
    return torch.stack([tensor[row].mean(dim=0) for row in rows])
