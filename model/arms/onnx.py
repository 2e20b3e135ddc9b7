"""Writes the exported folder of an arm that has a network: ONNX, tokenizer, and what
sentence-transformers reads; checks that the graph is the network.
"""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.beam_jobs.core.model_folder import (
    ONNX,
    QUANTIZED,
    apply_temperature,
    count_cut_texts,
)
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.model.arms.arm import Exported
from amazon_electra.model.arms.regression import ABSENT, read_weights
from amazon_electra.model.device import open_device
from amazon_electra.model.encoders.export import write_pooling
from amazon_electra.model.finetuning import network
from amazon_electra.model.finetuning.examples import Example, Task

CHECKED_TEXTS = 1_000
"""Texts of dev on which ONNX is compared with torch."""
ALONE = 100
"""Of them that int8 computes alone too."""
MAX_DIFFERENCE = 1e-4
"""Of a logit, between torch and ONNX in fp32."""
MAX_CHANGED = 0.01
"""Share of the labels that int8 may change."""
MAX_SHIFT = 1e-3
"""Of a probability in int8, between a text alone and the same text among others."""
BATCH = 32
INT8_BLOCK = 32
"""Weights, and numbers of a token's state, that share a scale in int8. With 128 a text alone has
other answers than in a batch."""
ENCODER = "encoder"
"""Folder of an encoder whose head transformers has no class for: in the model folder itself it
would be loaded with a head of random weights."""
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def write_network(
    source: Path, examples: Sequence[Example], temperature: float, task: Task, output: Path
) -> Exported:
    """Write weights, tokenizer and ONNX of the fine-tuned folder `source`, with calibrated logits;
    say what int8 changed.

    UserError where the graph gives other logits than the network.
    """
    model, head, tokenizer = network.load_finetuned(source)
    loaded: Any = model
    divide_logits(model, len(head.labels), temperature)
    loaded.save_pretrained(output)
    write_shape(loaded.config, output)
    names = choose_inputs(loaded.config)
    write_tokenizer(source, output, head, names)
    # of ModernBERT the head may classify the mean
    mode = getattr(loaded.config, "classifier_pooling", "cls")
    write_pooling(output, loaded.config.hidden_size, head.max_length, mode)
    export_onnx(Logits(model), names, output / ONNX)
    some = list(examples[:CHECKED_TEXTS])
    features = head.make_featurizer(tokenizer)(some)
    device = open_device("cpu", "fp32")
    exact = np.stack(network.predict_logits(model, features, task.shape, device))
    config = {"max_length": head.max_length}
    return Exported(1.0, config, check_onnx(source, output, some, exact))


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
    """Add depth and width to config.json under the names that text-embeddings-inference reads:
    DistilBERT has others for them.
    """
    file = folder / "config.json"
    shape = {name: getattr(config, name) for name in ("hidden_size", "num_hidden_layers")}
    write_json(file, json.loads(file.read_text(encoding="utf-8")) | shape)


def check_onnx(
    source: Path, output: Path, examples: Sequence[Example], exact: np.ndarray
) -> dict[str, Any]:
    """Return by how much the graph's logits differ from the exact ones [examples, classes], what
    int8 changes, and how many texts are cut; UserError where the graph is another model.
    """
    texts = [(one.text, one.pair) for one in examples]
    found = run_onnx(output / ONNX, output / "tokenizer.json", texts)
    difference = float(np.abs(found - exact).max())
    if difference > MAX_DIFFERENCE or (found.argmax(1) != exact.argmax(1)).any():
        raise UserError(
            f"{source}: the exported ONNX gives other logits than the network (by up to "
            f"{difference:.2g}); torch.onnx does not export this architecture rightly"
        )
    return {
        "onnx": {"largest_difference": difference},
        "int8": quantize(output, texts, exact),
        "cut": count_cut(output / "tokenizer.json", texts),
    }


def count_cut(tokenizer_file: Path, texts: Sequence[tuple[str, str | None]]) -> dict[str, int]:
    """Return the tokens that the model reads, and of how many texts it does not read the end."""
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    assert tokenizer.truncation, "write_tokenizer enables it"
    inputs = [text if pair is None else (text, pair) for text, pair in texts]
    return {
        "max_length": int(tokenizer.truncation["max_length"]),
        "texts": len(texts),
        "cut": count_cut_texts(tokenizer, inputs),
    }


class StatesClassifier(nn.Module):
    """An encoder, the pooled states of its last layers, and the regression on them."""

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
        logits: Tensor = self.linear(pooled)
        return logits


def fold_regression(
    pipeline: Any, labels: Sequence[str], temperature: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return weight [classes, width] and bias [classes], float32, of a linear layer on raw states
    that does what a pipeline of standardization and regression does, with calibrated logits.
    """
    scaler, regression = pipeline
    rows, offsets = (part.astype(np.float64) for part in read_weights(regression))
    if len(rows) == 1:
        rows, offsets = (
            np.concatenate([-rows / 2, rows / 2]),
            np.concatenate([-offsets / 2, offsets / 2]),
        )
    order = [list(labels).index(name) for name in regression.classes_]
    weight = np.zeros((len(labels), rows.shape[1]))
    bias = np.full(len(labels), ABSENT)
    weight[order] = rows / scaler.scale_ / temperature
    bias[order] = (offsets - rows @ (scaler.mean_ / scaler.scale_)) / temperature
    return weight.astype(np.float32), bias.astype(np.float32)


def quantize(
    output: Path, texts: Sequence[tuple[str, str | None]], exact: np.ndarray
) -> dict[str, Any]:
    """Write model_quantized.onnx, unless it changes too many labels or gives a text other answers
    beside other texts; return what was found.

    A scale belongs to a block of weights, and of one token's state: where one scale is of the whole
    batch, as in `quantize_dynamic`, a probability moves by 0.05 with the texts beside it.
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
    tokenizer = output / "tokenizer.json"
    found = run_onnx(file, tokenizer, texts)
    alone = run_onnx(file, tokenizer, texts[:ALONE], batch=1)
    changed = int((found.argmax(1) != exact.argmax(1)).sum())
    shift = apply_temperature(alone, 1.0) - apply_temperature(found[:ALONE], 1.0)
    largest = float(np.abs(shift).max(initial=0))
    is_kept = changed <= MAX_CHANGED * len(texts) and largest <= MAX_SHIFT
    if not is_kept:
        file.unlink()
        print(
            f"int8 changes {changed} of {len(texts)} labels of dev, and probabilities by up to "
            f"{largest:.2g} with the texts beside: it is not kept"
        )
    return {"texts": len(texts), "changed": changed, "largest_shift": largest, "kept": is_kept}


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


def export_onnx(model: nn.Module, names: Sequence[str], file: Path) -> None:
    """Write the graph from INPUTS [batch, tokens] to logits [batch, classes], both sides
    dynamic.
    """
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


def run_onnx(
    file: Path, tokenizer_file: Path, texts: Sequence[tuple[str, str | None]], batch: int = BATCH
) -> np.ndarray:
    """Return logits [texts, classes], as somebody computes them who has the folder alone; texts of
    like length go together, since a batch is as long as its longest.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()  # threads that wait sleep: a quarter less CPU time
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.enable_padding()
    order = sorted(range(len(texts)), key=lambda row: sum(len(part or "") for part in texts[row]))
    inputs = [text if pair is None else (text, pair) for text, pair in texts]
    rows = []
    for start in range(0, len(texts), batch):
        encoded = tokenizer.encode_batch([inputs[row] for row in order[start : start + batch]])
        columns = {
            "input_ids": [one.ids for one in encoded],
            "attention_mask": [one.attention_mask for one in encoded],
            "token_type_ids": [one.type_ids for one in encoded],
        }
        rows.append(session.run(["logits"], {n: np.array(columns[n], np.int64) for n in names})[0])
    return np.concatenate(rows)[np.argsort(order)]


def write_tokenizer(source: Path, output: Path, head: network.Head, names: Sequence[str]) -> None:
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
