"""Where the weights come from when not from nothing: a transformers folder, or google's TensorFlow checkpoint.

With another vocabulary than ours, entries both have are kept, and each new one begins as the mean of the pieces the old
vocabulary would have cut it into.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from model import export
from model.command import UserMistake
from model.pretraining.electra import Electra
from model.pretraining.tensor_bundle import read_bundle
from model.pretraining.validation import Model

BY_ENTRY = {  # weights with one row per vocabulary entry
    "electra.embeddings.word_embeddings.weight",
    "generator_lm_head.bias",
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


def start_from(model: Model, origin: Origin, vocabulary: Path) -> list[str]:
    """Puts the weights found into the model; returns the names of those that keep their initial values."""
    given: dict[str, Tensor] = {}
    for role, trunk, folder in _sources(model, origin):
        weights = _read(folder, role)
        weights = _fit_vocabulary(weights, _vocabulary_of(folder), _lines(vocabulary / "vocab.txt"))
        encoder = getattr(model, trunk)
        mapping = export.names(role, len(encoder.layers), hasattr(encoder.project, "weight"), trunk)
        given = export.from_transformers(weights, mapping) | given
    if not given:
        raise UserMistake(f"--start_from {origin.main}: no ELECTRA weights there")
    _put(model, given, origin.main)
    return [name for name, _ in model.named_parameters() if name not in given]


def _sources(model: Model, origin: Origin) -> list[tuple[export.Role, str, Path]]:
    """Role of the weights, our name of the network, where they are; what is listed first wins where both have it."""
    if not isinstance(model, Electra):
        return [("generator", "encoder", origin.main), ("discriminator", "encoder", origin.main)]
    generator = origin.generator or (origin.main if _bundle_prefix(origin.main) else None)
    sources: list[tuple[export.Role, str, Path]] = [("discriminator", "discriminator", origin.main)]
    return sources + ([("generator", "generator", generator)] if generator else [])


def _put(model: Model, given: dict[str, Tensor], path: Path) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name not in given:
                continue
            tensor = given[name]
            if name == "embeddings.position" and tensor.shape[1:] == parameter.shape[1:]:
                rows = min(len(tensor), len(parameter))
                parameter[:rows] = tensor[:rows]
            elif tensor.shape != parameter.shape:
                raise UserMistake(
                    f"--start_from {path}: {name} is {list(tensor.shape)} there and {list(parameter.shape)} here; "
                    "choose the preset, or --set layers, hidden, intermediate, embedding … as in its config.json"
                )
            else:
                parameter.copy_(tensor)


def _read(path: Path, role: export.Role) -> Weights:
    """Weights by transformers' names."""
    prefix = _bundle_prefix(path)
    if prefix:
        return from_google(prefix, role)
    files = sorted(path.glob("model*.safetensors")) if path.is_dir() else []
    if not files and (path / "pytorch_model.bin").exists():
        held = torch.load(path / "pytorch_model.bin", map_location="cpu", weights_only=True)
        return {name: tensor.float() for name, tensor in held.items()}
    if not files:
        raise UserMistake(f"--start_from {path}: neither model.safetensors nor a TensorFlow checkpoint (*.index) there")
    weights: Weights = {}
    for file in files:
        weights |= {name: tensor.float() for name, tensor in load_file(file).items()}
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


def _vocabulary_of(path: Path) -> list[str]:
    folder = path if path.is_dir() else path.parent
    if not (folder / "vocab.txt").exists():
        raise UserMistake(f"--start_from {path}: put its vocab.txt beside the weights")
    return _lines(folder / "vocab.txt")


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def _fit_vocabulary(weights: Weights, old: list[str], new: list[str]) -> Weights:
    if old == new:
        return weights
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
