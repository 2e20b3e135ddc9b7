"""Writes an exported folder with a network: ONNX, tokenizer, sentence-transformers' files."""

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import transformers
from onnx import numpy_helper
from torch import Tensor, nn
from torch.nn import functional

from amazon_electra.beam_jobs.core.files import atomic_path, hash_bytes, write_json
from amazon_electra.beam_jobs.core.nesting import read_json
from amazon_electra.beam_jobs.model_folder.config import ONNX, QUANTIZED
from amazon_electra.model.arms.arm import Exported
from amazon_electra.model.encoders.export import write_pooling
from amazon_electra.model.finetuning import network
from amazon_electra.model.finetuning.head import Head
from amazon_electra.model.locks import exclusive_lock

INT8_BLOCK = 32
"""Weights, and numbers of a token's state, that share a scale in int8. With 128 a text alone has
other answers than in a batch."""
ENCODER = "encoder"
"""Folder of an encoder whose head transformers has no class for: in the model folder itself it
would be loaded with a head of random weights."""
OF_CLASSES = ("id2label", "label2id", "num_labels", "problem_type", "_name_or_path", "vocab_size")
"""Fields of an encoder's config that decide nothing of its graph."""
TRANSPOSED = " transposed"
MAX_CONSTANT = 16
"""Numbers in an array of a graph that is no weight."""
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def write_network(source: Path, temperature: float, output: Path, cache: Path | None) -> Exported:
    """Write weights, tokenizer and ONNX of the folder `source`, with calibrated logits."""
    model, head, _ = network.load_finetuned(source)
    loaded: Any = model
    divide_logits(model, len(head.labels), temperature)
    loaded.save_pretrained(output)
    write_shape(loaded.config, output)
    names = choose_inputs(loaded.config)
    write_tokenizer(source, output, head, names)
    # of ModernBERT the head may classify the mean
    mode = getattr(loaded.config, "classifier_pooling", "cls")
    write_pooling(output, loaded.config.hidden_size, head.max_length, mode)
    export_onnx(Logits(model), loaded.config, names, output / ONNX, cache)
    quantize(output)
    return Exported("transformers", 1.0, {"max_length": head.max_length})


def choose_inputs(config: Any) -> tuple[str, ...]:
    """Return the names of the inputs of a network: with types where it has several."""
    return INPUTS if getattr(config, "type_vocab_size", 0) > 1 else INPUTS[:2]


def divide_logits(classifier: nn.Module, classes: int, temperature: float) -> None:
    """Divide the weights of the layer that gives the logits, the last one with so many outputs."""
    layers = [m for m in classifier.modules() if isinstance(m, nn.Linear)]
    last = [layer for layer in layers if layer.out_features == classes][-1]
    with torch.no_grad():
        for parameter in last.parameters():
            parameter.div_(temperature)


def write_shape(config: Any, folder: Path) -> None:
    """Add depth and width to config.json under the names that text-embeddings-inference reads."""
    file = folder / "config.json"
    shape = {name: getattr(config, name) for name in ("hidden_size", "num_hidden_layers")}
    write_json(file, read_json(file) | shape)


class StatesClassifier(nn.Module):
    """An encoder, the pooled states of its last layers, and the regression on them and on those of
    the last at length 1.
    """

    def __init__(self, encoder: Any, layers: int, weight: np.ndarray, bias: np.ndarray) -> None:
        super().__init__()
        self.encoder, self.layers = encoder, layers
        self.linear = nn.Linear(weight.shape[1], len(weight))
        self.linear.load_state_dict(
            {"weight": torch.from_numpy(weight), "bias": torch.from_numpy(bias)}
        )

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        output = self.encoder(
            input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True, **types
        )
        last = torch.cat(output.hidden_states[-self.layers :], -1)
        pooled = network.pool_tokens(last, attention_mask, self.encoder.config)
        direction = functional.normalize(pooled[:, -self.encoder.config.hidden_size :], dim=1)
        logits: Tensor = self.linear(torch.cat([pooled, direction], 1))
        return logits


def quantize(output: Path) -> None:
    """Write model_quantized.onnx. A scale belongs to a block of weights, and of one token's state:
    where one scale is of the whole batch, as in `quantize_dynamic`, a probability moves by 0.05
    with the texts beside it.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.matmul_nbits_quantizer import (
        DefaultWeightOnlyQuantConfig,
        MatMulNBitsQuantizer,
    )

    logging.getLogger(MatMulNBitsQuantizer.__module__).setLevel(logging.WARNING)
    file = output / QUANTIZED
    quantize_dynamic(
        output / ONNX, file, weight_type=QuantType.QInt8, op_types_to_quantize=["Gather"]
    )
    config = DefaultWeightOnlyQuantConfig(
        block_size=INT8_BLOCK, is_symmetric=True, accuracy_level=4, bits=8
    )
    matrices = MatMulNBitsQuantizer(str(file), algo_config=config)
    matrices.process()
    matrices.model.save_model_to_file(str(file), use_external_data_format=False)


class Logits(nn.Module):
    """Gives the logits alone, of inputs by their places."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        output = self.classifier(input_ids=input_ids, attention_mask=attention_mask, **types)
        logits: Tensor = output.logits
        return logits


def export_onnx(
    model: nn.Module, config: Any, names: Sequence[str], file: Path, cache: Path | None
) -> None:
    """Write the graph from INPUTS [batch, tokens] to logits [batch, classes], both sides dynamic.
    It depends on the architecture alone: `cache` keeps it without weights for other models, which
    get the same bytes as without; exports side by side trace it once.
    """
    tensors = {
        name: tensor.detach().numpy()
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
    }
    digest = hash_architecture(config, tensors, names)
    kept = cache and cache / f"graph-{digest}.onnx"
    with exclusive_lock(kept.with_suffix(".lock")) if kept else nullcontext():
        if kept and kept.exists():
            graph = onnx.load(kept)
        else:
            trace(model, names, file)
            graph = onnx.load(file)
            if not take_weights(graph, tensors):
                return
            if kept:
                with atomic_path(kept) as partial:
                    onnx.save(graph, partial)
    for one in graph.graph.initializer:
        if source := one.doc_string:
            name = source.removesuffix(TRANSPOSED)
            value = tensors[name] if name == source else np.ascontiguousarray(tensors[name].T)
            one.CopyFrom(numpy_helper.from_array(value, one.name))
    onnx.save(graph, file)


def hash_architecture(config: Any, tensors: dict[str, np.ndarray], names: Sequence[str]) -> str:
    """Return a digest of all that decides a graph, but not how many classes or tokens there are."""
    own = {k: v for k, v in config.to_dict().items() if k not in OF_CLASSES}
    shapes = {name: tensor.shape[1:] for name, tensor in tensors.items()}
    parts = [own, shapes, list(names), torch.__version__, transformers.__version__]
    return hash_bytes(repr(parts).encode())[:32]


def take_weights(graph: onnx.ModelProto, tensors: dict[str, np.ndarray]) -> bool:
    """Replace the weights in a graph by the names of the tensors that they are, as they are or
    transposed, and forget how many classes there are; return whether each is one of them.
    """
    matrices = [name for name, one in tensors.items() if one.ndim == 2]
    transposed = {hash_bytes(tensors[name].T.tobytes()): name for name in matrices}
    if len(transposed) < len(matrices):
        return False
    for one in graph.graph.initializer:
        value = numpy_helper.to_array(one)
        if one.name in tensors and np.array_equal(value, tensors[one.name]):
            one.doc_string = one.name
        elif name := transposed.get(hash_bytes(value.tobytes())):
            one.doc_string = name + TRANSPOSED
        elif value.dtype == np.float32 and value.size > MAX_CONSTANT:
            return False
        else:
            continue
        one.ClearField("raw_data")
        one.ClearField("dims")
    for node in graph.graph.node:
        del node.metadata_props[:]
    del graph.graph.value_info[:]
    graph.graph.output[0].type.tensor_type.shape.dim[1].ClearField("dim_value")
    return True


def trace(model: nn.Module, names: Sequence[str], file: Path) -> None:
    """Write the graph of a network by torch.onnx: some 8 CPU seconds for a small one."""
    ids = torch.randint(5, 20, (2, 8))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    inputs["token_type_ids"] = torch.zeros_like(ids)
    shape = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    torch.onnx.export(
        model.eval(),
        tuple(inputs[name] for name in names),
        file,
        input_names=list(names),
        output_names=["logits"],
        dynamic_shapes=dict.fromkeys(names, shape),
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def write_tokenizer(source: Path, output: Path, head: Head, names: Sequence[str]) -> None:
    """Write tokenizer.json, which cuts to the head's length, and tokenizer_config.json, with which
    transformers takes it as it is.
    """
    from transformers import AutoTokenizer

    tokenizer = network.load_tokenizer(str(source))
    tokenizer.enable_truncation(head.max_length)
    tokenizer.save(str(output / "tokenizer.json"))
    special = AutoTokenizer.from_pretrained(source).special_tokens_map
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": head.max_length,
        "model_input_names": list(names),
        **{name: str(token) for name, token in special.items() if isinstance(token, str)},
    }
    write_json(output / "tokenizer_config.json", config)
