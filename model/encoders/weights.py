"""Reads weights by the names of transformers' ELECTRA; a module would draw missing heads."""

import pickle
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from amazon_electra.beam_jobs.core.errors import refuse, require
from amazon_electra.model.architecture import Architecture
from amazon_electra.model.encoders.config import MIN_TYPES, Config, find_kind
from amazon_electra.model.encoders.places import PICKLED_WEIGHTS, SAFE_WEIGHTS
from amazon_electra.model.encoders.weight_mapping import UNTIED, rename_weight

Weights = dict[str, Tensor]
WORDS = "electra.embeddings.word_embeddings.weight"
TYPES = "electra.embeddings.token_type_embeddings.weight"
HEAD = "generator_predictions."


def read_weights(folder: Path, config: Config) -> Weights:
    """Return the weights of a transformers folder in fp32; missing token types are zeros, or copies
    of the first. A head whose output table is not the word embeddings is left out.
    """
    kind = find_kind(config)
    assert kind, "transformers' own module loads this one"
    weights = {
        rename_weight(name, kind): tensor.float()
        for file in list_tensor_files(folder)
        for name, tensor in load_tensors(file).items()
    }
    require(WORDS in weights, f"no {config['model_type'].upper()} weights there")
    types = weights.get(TYPES, torch.zeros(1, weights[WORDS].shape[1]))
    weights[TYPES] = torch.cat([types, types[:1].expand(max(0, MIN_TYPES - len(types)), -1)])
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


def list_shapes(shape: Architecture) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and shape of the trunk's matrices and position vectors."""
    wide, middle, narrow = shape.hidden, shape.intermediate, shape.embedding
    yield "electra.embeddings.position_embeddings.weight", (shape.max_positions, narrow)
    yield "electra.embeddings.LayerNorm.weight", (narrow,)
    if narrow != wide:
        yield "electra.embeddings_project.weight", (wide, narrow)
    for number in range(shape.layers):
        layer = f"electra.encoder.layer.{number}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            yield f"{layer}.attention.{part}.weight", (wide, wide)
        yield f"{layer}.intermediate.dense.weight", (middle, wide)
        yield f"{layer}.output.dense.weight", (wide, middle)


def load_tensors(file: Path) -> Weights:
    """Return the tensors of a file; code in a pickle is never run."""
    kinds = (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError)
    with refuse(*kinds, message=f"{file.name} is damaged ({{}})"):
        if file.suffix == ".safetensors":
            return load_file(file)
        weights: Weights = torch.load(file, map_location="cpu", weights_only=True)
    return weights


def list_tensor_files(folder: Path) -> list[Path]:
    """Return model.safetensors or its parts, else pytorch_model.bin."""
    patterns = (*SAFE_WEIGHTS, *PICKLED_WEIGHTS)
    files = next((found for p in patterns if (found := sorted(folder.glob(p)))), [])
    require(files, "put its model.safetensors (or pytorch_model.bin) beside config.json")
    return files


MAX_SURPLUS = 1024
"""Rows of a table of vectors beyond the tokenizer's ids: tables are filled up for the speed of
matrix products, and leave room for entries (mDeBERTa-v3: 899).
"""


def load_masked_lm(folder: Path, seed: int = 0) -> tuple[Any, list[str]]:
    """Return a folder's network in fp32, and the names of weights its file lacks, drawn by seed."""
    from transformers import AutoModelForMaskedLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network, lost = load_pretrained(AutoModelForMaskedLM, folder)
    own = [name for name in lost if name.startswith(f"{network.base_model_prefix}.")]
    require(not own, f"config.json asks for {own[:1]}, which the weights lack; copy both again")
    return network, lost


def load_pretrained(auto: Any, folder: str | Path, **more: Any) -> tuple[Any, list[str]]:
    """Return a network in fp32, and the names of its random weights, which its files lack."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    kinds = (OSError, ValueError, RuntimeError, SafetensorError)
    with refuse(*kinds, message="it cannot be loaded ({}); copy it again"):
        network, report = auto.from_pretrained(
            folder,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            dtype=torch.float32,
            **more,
        )
    lost = {*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])}
    return network, sorted(name for name in lost if not name.endswith("position_ids"))


def check_size(network: Any, ids: int) -> None:
    """Raise UserError where the table of vectors is not that of a tokenizer with so many ids."""
    rows = network.get_input_embeddings().weight.shape[0]
    require(0 <= rows - ids < MAX_SURPLUS, f"its tokenizer has {ids} ids, its weights {rows} rows")
