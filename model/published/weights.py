"""Reads the weights of a published encoder by the names that transformers' ELECTRA has for them.

They come from a transformers folder of any kind in kinds.py, or from google's TensorFlow checkpoint
of ELECTRA.
"""

import pickle
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from model.pretraining.network.transformers_config import Role
from model.published.architecture import (
    LEAST_TYPES,
    Config,
    Fail,
    count_skipped_positions,
    find_kind,
)
from model.published.kinds import UNTIED, rename_weight
from model.published.places import PICKLED_WEIGHTS, SAFE_WEIGHTS
from model.published.tensor_bundle import read_bundle

Weights = dict[str, Tensor]
WORDS = "electra.embeddings.word_embeddings.weight"
POSITIONS = "electra.embeddings.position_embeddings.weight"
TYPES = "electra.embeddings.token_type_embeddings.weight"
HEAD = "generator_predictions."


def read_weights(folder: Path, config: Config, fail: Fail) -> Weights:
    """Return the weights of a transformers folder, in fp32.

    Token types that are missing are zeros, or copies of the first one. A head whose output table is
    another than the word embeddings has no place here, and is left out.
    """
    kind = find_kind(config, fail)
    weights = {
        rename_weight(name, kind): tensor for name, tensor in read_tensors(folder, fail).items()
    }
    if WORDS not in weights:
        raise fail(f"no {config['model_type'].upper()} weights there")
    if POSITIONS in weights:
        weights[POSITIONS] = weights[POSITIONS][count_skipped_positions(config, kind) :]
    types = weights.get(TYPES, torch.zeros(1, weights[WORDS].shape[1]))
    weights[TYPES] = torch.cat([types, types[:1].expand(max(0, LEAST_TYPES - len(types)), -1)])
    untied = weights.pop(UNTIED, None)
    if untied is not None and not torch.equal(untied, weights[WORDS]):
        weights = {name: t for name, t in weights.items() if not name.startswith(HEAD)}
        weights.pop("generator_lm_head.bias", None)
    return weights


def has_mlm_head(weights: Mapping[str, Tensor]) -> bool:
    """Return whether there is a head that predicts masked tokens."""
    return f"{HEAD}dense.weight" in weights


def count_layers(weights: Mapping[str, Tensor]) -> int:
    """Return how many layers have weights."""
    found = (re.match(r"electra\.encoder\.layer\.(\d+)\.", name) for name in weights)
    return max((int(match[1]) for match in found if match), default=-1) + 1


def read_tensors(folder: Path, fail: Fail) -> Weights:
    """Return all tensors of a folder by their own names, in fp32."""
    return {
        name: tensor.float()
        for file in list_tensor_files(folder, fail)
        for name, tensor in load_tensors(file, fail).items()
    }


def load_tensors(file: Path, fail: Fail) -> Weights:
    """Return the tensors of a file; code in a pickle is never run."""
    try:
        return load_file(file) if file.suffix == ".safetensors" else _load_pickled(file)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError) as error:
        cause = str(error).splitlines()[0]
        raise fail(f"{file.name} is damaged ({cause}); copy it again") from None


def list_tensor_files(folder: Path, fail: Fail) -> list[Path]:
    """Return model.safetensors or its parts, else pytorch_model.bin."""
    patterns = (*SAFE_WEIGHTS, *PICKLED_WEIGHTS)
    files = next((found for p in patterns if (found := sorted(folder.glob(p)))), [])
    if not files:
        raise fail("neither model.safetensors nor a TensorFlow checkpoint (*.index) there")
    return files


def _load_pickled(file: Path) -> Weights:
    weights: Weights = torch.load(file, map_location="cpu", weights_only=True)
    return weights


def find_bundle_prefix(path: Path) -> Path | None:
    """Return the prefix of the newest TensorFlow checkpoint at a path, or None."""
    if not path.is_dir():
        return path if path.with_name(path.name + ".index").exists() else None
    indexes = sorted(
        path.glob("*.index"), key=lambda file: [int(n) for n in re.findall(r"\d+", file.name)]
    )
    return indexes[-1].with_suffix("") if indexes else None


def read_google_weights(prefix: Path, role: Role) -> Weights:
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
