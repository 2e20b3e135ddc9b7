"""Where the weights come from when not from nothing: a transformers folder, or google's TensorFlow checkpoint.

With another vocabulary than ours, entries both have are kept, and each new one begins as the mean of the pieces the old
vocabulary would have cut it into.
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

from model import export
from model.command import UserMistake
from model.presets import Architecture
from model.pretraining.electra import Electra
from model.pretraining.tensor_bundle import read_bundle
from model.pretraining.validation import Model

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
    """Folders the weights are read from."""

    main: Path  # discriminator, or an MLM model, or google's checkpoint with both networks
    generator: Path | None = None

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for path in (self.main, self.generator):
            for file in sorted(_weight_files(path)) if path else []:
                digest.update(f"{file.name} {file.stat().st_size} ".encode() + _head(file))
        return digest.hexdigest()


def _head(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(1 << 20)


def _weight_files(path: Path) -> list[Path]:
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
    role: export.Role
    trunk: str  # our name of the network
    shape: Architecture

    def mistake(self, text: str) -> UserMistake:
        return UserMistake(f"{self.option} {self.folder}: {text}")


def start_from(model: Model, shape: Architecture, origin: Origin, vocabulary: Path) -> list[str]:
    """Puts the weights found into the model, whose trunks must all be there; returns the names of those that keep
    their initial values."""
    given: dict[str, Tensor] = {}
    for source in _sources(model, shape, origin):
        weights = _read(source)
        found = _found(model, source, _fit_vocabulary(weights, source, _lines(vocabulary / "vocab.txt")))
        _demand_shape(source, weights)
        _demand_trunk(model, source, found)
        mine = {name: tensor for name, tensor in found.items() if name not in given}
        _put(model, mine, source)
        given |= mine
    rows = len(given["embeddings.position"])
    left = [f"embeddings.position[{rows}:]"] if rows < len(model.embeddings.position) else []
    return left + [name for name, _ in model.named_parameters() if name not in given]


def describe(origin: Origin, initial: list[str]) -> str:
    """One line for the log; `initial` is what start_from returned."""
    parts = dict.fromkeys(name if "[" in name else name.split(".")[0] for name in initial)
    return f"starting from {origin.main}" + (f"; newly initialized: {', '.join(parts)}" if parts else "")


def _sources(model: Model, shape: Architecture, origin: Origin) -> list[Source]:
    """What is listed first wins where both have it."""
    main = partial(Source, "--start_from", origin.main)
    if not isinstance(model, Electra):
        return [main("generator", "encoder", shape), main("discriminator", "encoder", shape)]
    sources = [main("discriminator", "discriminator", shape)]
    if origin.generator:
        narrow = shape.generator()
        sources.append(Source("--start_generator_from", origin.generator, "generator", "generator", narrow))
    elif _bundle_prefix(origin.main):
        sources.append(main("generator", "generator", shape.generator()))
    return sources


def _found(model: Model, source: Source, weights: Weights) -> Weights:
    """By our names."""
    encoder = getattr(model, source.trunk)
    mapping = export.names(source.role, len(encoder.layers), hasattr(encoder.project, "weight"), source.trunk)
    found = export.from_transformers(weights, mapping)
    if not found:
        raise source.mistake("no ELECTRA weights there")
    return found


def _demand_shape(source: Source, weights: Weights) -> None:
    """The same layers and widths, and the heads, which no weight tells: from config.json, which google's checkpoints
    do not have, and the layers from the weights."""
    config = {} if _bundle_prefix(source.folder) else _config(source)
    theirs = {ours: config[name] for ours, name in IN_CONFIG.items() if name in config}
    numbers = [int(match[1]) for name in weights if (match := re.match(r"electra\.encoder\.layer\.(\d+)\.", name))]
    theirs["layers"] = max(numbers, default=-1) + 1
    differing = {name: number for name, number in theirs.items() if number != getattr(source.shape, name)}
    if differing:
        told = ", ".join(f"{name}={number}" for name, number in differing.items())
        here = ", ".join(f"{name}={getattr(source.shape, name)}" for name in differing)
        own = "the generator" if source.trunk == "generator" else "the model"
        raise source.mistake(f"{told} there, {here} in {own} here; choose the preset, or --set, that it was made with")


def _demand_trunk(model: Model, source: Source, found: Weights) -> None:
    needed = [n for n, _ in model.named_parameters() if n.startswith(("embeddings.", f"{source.trunk}."))]
    missing = [name for name in needed if name not in found]
    if missing:
        raise source.mistake(f"{len(missing)} of {len(needed)} weights are missing there, the first is {missing[0]}")


def _put(model: Model, given: Weights, source: Source) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name not in given:
                continue
            tensor = given[name]
            if name == "embeddings.position" and tensor.shape[1:] == parameter.shape[1:]:
                rows = min(len(tensor), len(parameter))
                parameter[:rows] = tensor[:rows]
            elif tensor.shape != parameter.shape:
                raise source.mistake(
                    f"{name} is {list(tensor.shape)} there and {list(parameter.shape)} here; "
                    "choose the preset, or --set layers, hidden, intermediate, embedding … as in its config.json"
                )
            else:
                parameter.copy_(tensor)


def _config(source: Source) -> dict[str, Any]:
    path = source.folder / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise source.mistake("put its config.json beside the weights") from None
    except ValueError as error:
        raise source.mistake(f"config.json is damaged ({error}); copy it again") from None
    return config


def _read(source: Source) -> Weights:
    """Weights by transformers' names."""
    prefix = _bundle_prefix(source.folder)
    if prefix:
        return from_google(prefix, source.role)
    files = sorted(source.folder.glob("model*.safetensors")) or sorted(source.folder.glob("pytorch_model.bin"))
    if not files:
        raise source.mistake("neither model.safetensors nor a TensorFlow checkpoint (*.index) there")
    weights: Weights = {}
    for file in files:
        try:
            held = load_file(file) if file.suffix == ".safetensors" else _load_pickled(file)
        except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError) as error:
            raise source.mistake(f"{file.name} is damaged ({error}); copy it again") from None
        weights |= {name: tensor.float() for name, tensor in held.items()}
    return weights


def _load_pickled(file: Path) -> Weights:
    weights: Weights = torch.load(file, map_location="cpu", weights_only=True)
    return weights


def _bundle_prefix(path: Path) -> Path | None:
    """The newest TensorFlow checkpoint a path means, if it means one."""
    if not path.is_dir():
        return path if path.with_name(path.name + ".index").exists() else None
    indexes = sorted(path.glob("*.index"), key=lambda file: [int(n) for n in re.findall(r"\d+", file.name)])
    return indexes[-1].with_suffix("") if indexes else None


def from_google(prefix: Path, role: export.Role) -> Weights:
    """google's variables under transformers' names; the two networks share the tables of `electra/embeddings`."""
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
        weights[_google_name(name, own)] = tensor
    return weights


def _google_name(name: str, own: str) -> str:
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


def _vocabulary_of(source: Source) -> list[str]:
    folder = source.folder if source.folder.is_dir() else source.folder.parent
    if not (folder / "vocab.txt").exists():
        raise source.mistake("put its vocab.txt beside the weights")
    return _lines(folder / "vocab.txt")


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def _fit_vocabulary(weights: Weights, source: Source, new: list[str]) -> Weights:
    old = _vocabulary_of(source)
    if old == new:
        return weights
    entries = min((len(tensor) for name, tensor in weights.items() if name in BY_ENTRY), default=len(old))
    if entries < len(old) or "[UNK]" not in old:
        raise source.mistake(f"its vocab.txt ({len(old)} lines) is not that of the weights ({entries} entries)")
    rows = rows_for(old, new)
    return {name: _carry(tensor, rows) if name in BY_ENTRY else tensor for name, tensor in weights.items()}


def rows_for(old: list[str], new: list[str]) -> list[list[int]]:
    """For each new entry the old ids it is the mean of: its own, or those of its pieces, or of [UNK]."""
    ids = {token: i for i, token in enumerate(old)}
    unknown = [ids["[UNK]"]]
    return [[ids[token]] if token in ids else pieces(token, ids) or unknown for token in new]


def pieces(token: str, ids: dict[str, int]) -> list[int]:
    """Longest match first, as WordPiece cuts a word; empty where it cannot."""
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


def _carry(tensor: Tensor, rows: list[list[int]]) -> Tensor:
    return torch.stack([tensor[row].mean(dim=0) for row in rows])
