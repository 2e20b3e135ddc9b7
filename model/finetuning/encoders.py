"""From a folder (or hub name) to a network with a fresh head, and back to a folder others can load.

With pooling `cls`, and for every shape but classification and regression, the network is the architecture's own
AutoModelFor… class, and the folder loads with it. With pooling `mean` the head is ours (heads.py): the folder loads
with AutoModel (encoder) and keeps the head in head.safetensors; task.json says which.
"""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn

from model.command import UserMistake
from model.finetuning import cheap_dropout
from model.finetuning.examples import Shape, Task
from model.finetuning.heads import MeanPooledClassifier
from model.json_file import write_json

DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout")
"""As the architectures call them in config.json."""
COUNTED_FROM_PADDING = ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer")
"""Architectures whose first position is the one after the padding's index."""
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json")


@dataclass(frozen=True)
class Head:
    """What besides the weights says how a fine-tuned folder is used: task.json."""

    task: str
    shape: Shape
    labels: tuple[str, ...]
    pooling: str
    max_length: int
    stride: int
    clean: str = "none"
    threshold: float = 0.0
    """For `span`: how far "no answer" must outscore the best answer to be given; chosen on dev."""


def build(encoder: str, architecture: str | None, task: Task, pooling: str, dropout: float | None = None) -> nn.Module:
    """The network before fine-tuning. Seed torch first: the head (and a random encoder) is drawn here."""
    folder = source_folder(encoder, architecture)
    config = _config(folder, task, dropout)
    auto = _auto_class(task.shape, pooling)
    model = auto.from_config(config) if encoder == "random" else _encoder_of(auto, folder, config)
    return MeanPooledClassifier(model, config.num_labels) if uses_mean(task.shape, pooling) else model


def write_attention_out(model: nn.Module) -> None:
    """Products and softmax one by one instead of a fused kernel, which can give no attention weights."""
    cheap_dropout.write_attention_out(model.encoder if isinstance(model, MeanPooledClassifier) else model)


def uses_mean(shape: Shape, pooling: str) -> bool:
    return pooling == "mean" and shape in ("classification", "regression")


def source_folder(encoder: str, architecture: str | None) -> str:
    """Where config.json and the tokenizer are read from."""
    if encoder != "random":
        if encoder.startswith(("/", ".")) and not (Path(encoder) / "config.json").exists():
            raise UserMistake(f"--encoder {encoder}: no transformers model there (config.json is missing)")
        return encoder
    if architecture is None:
        raise UserMistake(
            "--encoder random needs --architecture DIR: the folder whose config.json and tokenizer to use"
        )
    return architecture


def _config(folder: str, task: Task, dropout: float | None = None) -> Any:
    from transformers import AutoConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise UserMistake(f"--encoder {folder}: no transformers model there ({str(error).splitlines()[0]})") from error
    if task.shape in ("classification", "regression", "tokens"):
        config.num_labels = max(1, len(task.labels))
        if task.labels:
            config.id2label = dict(enumerate(task.labels))
            config.label2id = {label: i for i, label in enumerate(task.labels)}
    if task.shape == "span":
        config.num_labels = 2  # where it begins, where it ends
    for name in DROPOUTS if dropout is not None else ():
        if hasattr(config, name):
            setattr(config, name, dropout)
    config.problem_type = {"classification": "single_label_classification", "regression": "regression"}.get(task.shape)
    return config


def _auto_class(shape: Shape, pooling: str) -> Any:
    import transformers

    if uses_mean(shape, pooling):
        return transformers.AutoModel
    return {
        "classification": transformers.AutoModelForSequenceClassification,
        "regression": transformers.AutoModelForSequenceClassification,
        "tokens": transformers.AutoModelForTokenClassification,
        "span": transformers.AutoModelForQuestionAnswering,
        "choice": transformers.AutoModelForMultipleChoice,
    }[shape]


def _encoder_of(auto: Any, folder: str, config: Any) -> nn.Module:
    """Loads weights; the missing ones may only be those of the head, and of a pooler, which not every objective has.

    A head that the folder has, of whatever task, is none of this one's: in its place comes what the seed draws.
    """
    model, lost = _read(auto, folder, config)
    inside = f"{model.base_model_prefix}." if hasattr(model, model.base_model_prefix) else ""
    _refuse([name for name in lost if name.startswith(inside) and "pooler" not in name], f"--encoder {folder}")
    if any(name not in lost for name in model.state_dict() if not name.startswith(inside)):
        for name, part in auto.from_config(config, dtype=torch.float32).named_children():
            if name != model.base_model_prefix:
                setattr(model, name, part)
    return model


def _read(auto: Any, folder: str, config: Any) -> tuple[Any, list[str]]:
    """The network, and the weights that its file has not, or has in another shape: these are random."""
    from safetensors import SafetensorError
    from transformers.utils import logging

    logging.set_verbosity_error()
    try:
        model, report = auto.from_pretrained(
            folder, config=config, output_loading_info=True, ignore_mismatched_sizes=True, dtype=torch.float32
        )
    except (OSError, SafetensorError) as error:
        raise UserMistake(f"--encoder {folder}: {str(error).splitlines()[0]}") from error
    lost = {*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])}
    return model, sorted(name for name in lost if "position_ids" not in name)


def _refuse(lost: list[str], folder: str) -> None:
    if lost:
        named = ", ".join(lost[:3]) + (f" and {len(lost) - 3} more" if len(lost) > 3 else "")
        raise UserMistake(
            f"{folder}: its weights file lacks what its config.json asks for: {named} are missing or of another shape; "
            "give a folder whose files belong together"
        )


def check_length(model: nn.Module, max_length: int, folder: str) -> None:
    """Texts may not be longer than the encoder has positions for."""
    config: Any = model.config
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None or getattr(config, "position_embedding_type", "absolute") != "absolute":
        return
    if config.model_type in COUNTED_FROM_PADDING:
        positions -= config.pad_token_id + 1
    if max_length > positions:
        raise UserMistake(f"max_length is {max_length}, but {folder} has {positions} positions: give at most so many")


def load_tokenizer(folder: str) -> Tokenizer:
    """The tokenizer itself: tokenizer.json where there is one, else what transformers makes of the folder."""
    file = Path(folder) / "tokenizer.json"
    if file.exists():
        tokenizer = Tokenizer.from_file(str(file))
    else:
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(folder).backend_tokenizer
        except (OSError, ValueError, AttributeError) as error:
            raise UserMistake(f"--encoder {folder}: no tokenizer there ({str(error).splitlines()[0]})") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if len(tokenizer.encode("a").tokens) == len(tokenizer.encode("a", add_special_tokens=False).tokens):
        raise UserMistake(f"--encoder {folder}: its tokenizer adds no [CLS] and [SEP]; tokenizer.json needs them")
    return tokenizer


def save(model: nn.Module, head: Head, tokenizer_folder: str, output: Path) -> None:
    """Writes the transformers folder; complete when task.json is there."""
    output.mkdir(parents=True, exist_ok=True)
    inner: Any = model.encoder if isinstance(model, MeanPooledClassifier) else model
    inner.config.amazon_electra = asdict(head) | {"note": _how_to_load(model)}
    inner.save_pretrained(output)
    if isinstance(model, MeanPooledClassifier):
        from safetensors.torch import save_file

        save_file({k: v.contiguous().cpu() for k, v in model.head.state_dict().items()}, output / "head.safetensors")
    _save_tokenizer(tokenizer_folder, output)
    write_json(output / "task.json", asdict(head) | {"how_to_load": _how_to_load(model)})


def _how_to_load(model: nn.Module) -> str:
    if isinstance(model, MeanPooledClassifier):
        return (
            "transformers.AutoModel gives the encoder; the head over the mean of its last hidden states is in "
            "head.safetensors (model.finetuning.encoders.load puts both together)"
        )
    return f"transformers.{type(model).__name__}"


def _save_tokenizer(folder: str, output: Path) -> None:
    if (Path(folder) / "tokenizer.json").exists():
        for name in TOKENIZER_FILES:
            if (Path(folder) / name).exists():
                shutil.copyfile(Path(folder) / name, output / name)
        return
    from transformers import AutoTokenizer

    AutoTokenizer.from_pretrained(folder).save_pretrained(output)


def read_head(folder: Path) -> Head:
    """task.json of a folder written by `save`."""
    if not (folder / "task.json").exists():
        raise UserMistake(f"{folder}: no task.json; --model must be a folder made by model.finetune")
    read = json.loads((folder / "task.json").read_text())
    return Head(**{n: read[n] for n in Head.__dataclass_fields__ if n in read} | {"labels": tuple(read["labels"])})


def load(folder: Path, dropout: float | None = None) -> tuple[nn.Module, Head, Tokenizer]:
    """A folder written by `save`, ready to predict; `dropout`: for one that is trained further, None: its own."""
    head = read_head(folder)
    task = Task(head.task, head.shape, head.labels, (), lambda *_: [], "")
    config = _config(str(folder), task, dropout)
    model, lost = _read(_auto_class(head.shape, head.pooling), str(folder), config)
    _refuse(lost, str(folder))
    if uses_mean(head.shape, head.pooling):
        model = MeanPooledClassifier(model, config.num_labels)
        _load_head(model.head, folder)
    return model.eval(), head, load_tokenizer(str(folder))


def _load_head(head: nn.Module, folder: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        head.load_state_dict(load_file(folder / "head.safetensors"))
    except (OSError, RuntimeError, SafetensorError) as error:
        raise UserMistake(f"{folder}: head.safetensors is missing or not the head of its task.json") from error
