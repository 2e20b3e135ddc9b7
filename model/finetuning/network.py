"""Make a network with a fresh head, run it, and write its folder with task.json."""

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from amazon_electra.beam_jobs.core.errors import refuse, require
from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.model.config import FinetuningSettings
from amazon_electra.model.device import Device
from amazon_electra.model.encoders.config import POOLING, START, TRAINED_LENGTH, count_positions
from amazon_electra.model.encoders.places import name_place
from amazon_electra.model.encoders.weights import load_pretrained
from amazon_electra.model.finetuning.examples import Shape, Task
from amazon_electra.model.finetuning.features import (
    Feature,
    collate_features,
    cut_prediction_batches,
    list_lengths,
    round_length,
)
from amazon_electra.model.finetuning.head import NETWORK, Head, make_task, read_task_head
from amazon_electra.model.pretraining.network.initial_weights import draw_start_weights

DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout")
"""The names architectures give dropout rates in config.json."""
HEADS: Mapping[Shape, tuple[str, str | None]] = {
    "classification": ("SequenceClassification", "single_label_classification"),
    "multilabel": ("SequenceClassification", "multi_label_classification"),
    "regression": ("SequenceClassification", "regression"),
    "tokens": ("TokenClassification", None),
    "span": ("QuestionAnswering", None),
    "choice": ("MultipleChoice", None),
}
"""End of the name of transformers' class, and its `problem_type`, of each shape of task."""
DEFAULT_TOKENS = {"span": 384}
"""Tokens of an input where none are set, else 128 (google; BERT's SQuAD: 384)."""
PREDICTION_BATCH = 64
PREDICTION_TOKENS = {"cuda": 32_768}
"""Tokens that fill a device, by its kind: a batch has more texts there where they are short."""
UNFUSED_ATTENTION_TOKENS = 128
"""Tokens up to which attention that is not fused is faster on a CPU (in bf16 1.24 times)."""
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "vocab.txt"),
    "special_tokens_map.json",
)


def build_network(
    encoder: str, architecture: str | None, task: Task, dropout: float | None = None
) -> nn.Module:
    """Return the network before fine-tuning; seed torch first, because the head is drawn here."""
    folder = find_source_folder(encoder, architecture)
    config, auto = load_config(folder, task, dropout), choose_auto_class(task.shape)
    if encoder != "random":
        return _load_encoder(auto, folder, config)
    model = auto.from_config(config, dtype=torch.float32)
    if getattr(config, START, None):  # how its pre-training began
        weights = draw_start_weights(config.to_dict(), torch.initial_seed())
        ours = {name.removeprefix("electra."): tensor for name, tensor in weights.items()}
        model.base_model.load_state_dict(ours)
    network: nn.Module = model
    return network


def prepare_network(model: Any, head: Head, device: Device) -> None:
    """Move the network to the device, with the attention that is fastest there."""
    if device.kind == "cpu" and head.max_length <= UNFUSED_ATTENTION_TOKENS:
        model.set_attn_implementation("eager")
    model.to(device.torch)


def find_source_folder(encoder: str, architecture: str | None) -> str:
    if encoder == "random":
        require(architecture, "needs `architecture`, a folder to take after", "encoder", encoder)
        return str(architecture)
    is_there = not encoder.startswith(("/", ".")) or (Path(encoder) / "config.json").exists()
    require(is_there, "no config.json there", "encoder", encoder)
    return encoder


def load_config(folder: str, task: Task, dropout: float | None = None) -> Any:
    """Return transformers' configuration of a folder, with the head of a task."""
    from transformers import AutoConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    with name_place("encoder", folder), refuse(OSError, ValueError):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        require(not getattr(config, "auto_map", None), "config.json names code, which is never run")
    if task.shape == "span":
        config.num_labels = 2  # where it begins, where it ends
    elif task.shape != "choice":
        config.num_labels = max(1, len(task.labels))
        if task.labels:
            config.id2label = dict(enumerate(task.labels))
            config.label2id = {label: i for i, label in enumerate(task.labels)}
    for name in DROPOUTS if dropout is not None else ():
        if hasattr(config, name):
            setattr(config, name, dropout)
    _, config.problem_type = HEADS[task.shape]
    return config


def choose_auto_class(shape: Shape) -> Any:
    import transformers

    return getattr(transformers, f"AutoModelFor{HEADS[shape][0]}")


def _load_encoder(auto: Any, folder: str, config: Any) -> nn.Module:
    """Return the network with the folder's encoder; what follows its last layer, the pooler too, is
    drawn by the seed, so that an encoder whose objective trained no pooler has no other head.
    """
    drawn = auto.from_config(config, dtype=torch.float32).state_dict()
    with name_place("encoder", folder):
        model, lost = load_pretrained(auto, folder, config=config)
        inside = f"{model.base_model_prefix}." if hasattr(model, model.base_model_prefix) else ""
        _refuse_missing([n for n in lost if n.startswith(inside) and "pooler" not in n])
    fresh = {n: t for n, t in drawn.items() if "pooler" in n or not n.startswith(inside)}
    model.load_state_dict(fresh, strict=False)
    network: nn.Module = model
    return network


def _refuse_missing(lost: list[str]) -> None:
    require(not lost, f"{len(lost)} weights lack or have another shape: {', '.join(lost[:3])}")


def choose_max_length(
    folder: str, task: Task, settings: FinetuningSettings
) -> tuple[int, str | None]:
    """Return the tokens of an input, those set or DEFAULT_TOKENS of the task's shape, and a warning
    where they are cut to the tokens the encoder was trained at: later positions are noise.
    """
    config = load_config(folder, task)
    wanted = settings.max_length or DEFAULT_TOKENS.get(task.shape, 128)
    positions, trained = count_positions(config), getattr(config, TRAINED_LENGTH, None)
    if settings.max_length is not None:
        check_length(config, wanted, folder)
    length = min(limit for limit in (wanted, positions, trained) if limit is not None)
    is_wanted = settings.max_length is not None or task.shape in DEFAULT_TOKENS
    if length == wanted or not is_wanted:
        return length, None
    why = "max_length is" if settings.max_length is not None else f"inputs of {task.name} take"
    has = f"has {positions} positions" if length != trained else f"was trained at {trained} tokens"
    return length, f"{why} {wanted}, but {folder} {has}: {length} are used"


def check_length(config: Any, max_length: int, folder: str) -> None:
    """Raise a UserError where texts may be longer than an encoder has positions for."""
    positions = count_positions(config)
    has_room = positions is None or max_length <= positions
    require(has_room, f"{folder} has {positions} positions", "max_length", max_length)


def pool_tokens(states: Tensor, mask: Tensor, config: Any) -> Tensor:
    """Return one state for each text, [texts, width]: that of its first token where config.json
    says so, else the mean of its tokens'. `states` are [texts, tokens, width], `mask`
    [texts, tokens] is 0 at padding.
    """
    if getattr(config, POOLING, "") == "cls":
        return states[:, 0]
    weights = mask.unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1)


def load_encoder(folder: str, task: Task) -> nn.Module:
    """Return the encoder of a folder or hub name without a head, and the same pooler each time."""
    from transformers import AutoModel

    torch.manual_seed(0)
    return _load_encoder(AutoModel, folder, load_config(folder, task))


def hash_network(network: nn.Module, way: list[Any]) -> str:
    """Return a hash of all weights, and of the way in which texts are computed with them."""
    digest = hashlib.blake2b(repr(way).encode(), digest_size=16)
    for name, tensor in network.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def load_tokenizer(folder: str) -> Tokenizer:
    """Return the tokenizer of tokenizer.json, or the one that transformers makes of the folder."""
    file = Path(folder) / "tokenizer.json"
    if file.exists():
        tokenizer = Tokenizer.from_file(str(file))
    else:
        from transformers import AutoTokenizer

        with name_place("encoder", folder), refuse(OSError, ValueError, AttributeError):
            loaded = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
            tokenizer = loaded.backend_tokenizer
    tokenizer.no_padding()
    tokenizer.no_truncation()
    adds = tokenizer.num_special_tokens_to_add(False)
    require(adds, "its tokenizer adds no [CLS] and [SEP]", "encoder", folder)
    return tokenizer


def save_finetuned(model: nn.Module, head: Head, tokenizer_folder: str, output: Path) -> None:
    """Write the transformers folder; it is complete when task.json is there."""
    output.mkdir(parents=True, exist_ok=True)
    network: Any = model
    network.save_pretrained(output)
    files = [Path(tokenizer_folder) / name for name in TOKENIZER_FILES]
    if files[0].exists():
        for file in files:
            if file.exists():
                shutil.copyfile(file, output / file.name)
    else:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder, trust_remote_code=False)
        tokenizer.save_pretrained(output)
    write_json(output / "task.json", asdict(head))


def load_finetuned(folder: Path, dropout: float | None = None) -> tuple[nn.Module, Head, Tokenizer]:
    """Load what `save_finetuned` wrote, ready to predict; `dropout` None keeps its own."""
    head = read_task_head(folder)
    require(head.kind == NETWORK, f"holds the arm {head.kind}", "model", folder)
    config = load_config(str(folder), make_task(head), dropout)
    with name_place("model", folder):
        model, lost = load_pretrained(choose_auto_class(head.shape), str(folder), config=config)
        _refuse_missing(lost)
    return model.eval(), head, load_tokenizer(str(folder))


def open_autocast(device: Device) -> torch.autocast:
    return torch.autocast(device.torch.type, torch.bfloat16, enabled=device.bf16)


def select_inputs(model: nn.Module, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the inputs the network takes: DistilBERT and others have no token types."""
    config: Any = model.config
    if getattr(config, "type_vocab_size", 0) > 1:
        return inputs
    return {name: tensor for name, tensor in inputs.items() if name != "token_type_ids"}


@torch.no_grad()
def predict_logits(
    model: nn.Module,
    features: Sequence[Feature],
    shape: Shape,
    device: Device,
    pad_id: int = 0,
    batch: int = PREDICTION_BATCH,
) -> list[np.ndarray]:
    """Return logits per feature: classification and multilabel [classes], regression [1], choice
    [choices], tokens [tokens, classes], span [2, tokens].
    """
    model.eval()
    results: list[np.ndarray] = [np.empty(0)] * len(features)
    before: tuple[np.ndarray, Tensor] | None = None
    lengths = list_lengths(features)
    longest = int(lengths.max(initial=0))

    def read(members: np.ndarray, logits: Tensor) -> None:
        for i, row in zip(members, logits.float().cpu().numpy(), strict=True):
            if shape in ("span", "tokens"):
                row = row[:, : lengths[i]] if shape == "span" else row[: lengths[i]]
            results[i] = row

    for members in cut_prediction_batches(features, batch, PREDICTION_TOKENS.get(device.kind, 0)):
        pad_to = round_length(int(lengths[members[-1]]), longest, device.torch)
        inputs, _ = collate_features([features[i] for i in members], shape, pad_to, pad_id)
        with open_autocast(device):
            output = model(**select_inputs(model, device.put(inputs)))
        if before:  # read while the device computes this batch
            read(*before)
        if shape == "span":
            before = members, torch.stack([output.start_logits, output.end_logits], 1)
        else:
            before = members, output.logits
    if before:
        read(*before)
    return results
