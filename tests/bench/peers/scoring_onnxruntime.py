"""ONNX Runtime's side of scoring.py, as its documentation has it, with nothing of ours:
`scoring_onnxruntime.py MODEL PRECISION TEXTS OUT`.

The network is exported by torch, int8 is made by `quantize_dynamic`, and the batches are of 32
texts of like length.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from tokenizers import Tokenizer
from transformers import AutoModelForSequenceClassification

BATCH, MAX_LENGTH = 32, 128


class Logits(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask).logits


def export_network(model: str, precision: str, folder: Path) -> Path:
    network = Logits(AutoModelForSequenceClassification.from_pretrained(model).eval())
    ids = torch.randint(5, 100, (3, 16))
    names = ["input_ids", "attention_mask"]
    torch.onnx.export(
        network,
        (ids, torch.ones_like(ids)),
        str(folder / "fp32.onnx"),
        input_names=names,
        output_names=["logits"],
        dynamic_axes={name: {0: "batch", 1: "tokens"} for name in names},
        dynamo=False,
    )
    if precision == "int8":
        quantize_dynamic(folder / "fp32.onnx", folder / "int8.onnx", weight_type=QuantType.QInt8)
    return folder / f"{precision}.onnx"


def score(texts: list[str], tokenizer: Tokenizer, session: onnxruntime.InferenceSession) -> list:
    encoded = [found.ids for found in tokenizer.encode_batch_fast(texts)]
    order = sorted(range(len(texts)), key=lambda i: len(encoded[i]))
    labels = [0] * len(texts)
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        ids = np.zeros((len(rows), max(len(encoded[i]) for i in rows)), np.int64)
        mask = np.zeros_like(ids)
        for n, i in enumerate(rows):
            ids[n, : len(encoded[i])], mask[n, : len(encoded[i])] = encoded[i], 1
        [logits] = session.run(None, {"input_ids": ids, "attention_mask": mask})
        for i, label in zip(rows, logits.argmax(1).tolist(), strict=True):
            labels[i] = label
    return labels


def main() -> None:
    model, precision, texts_file, output = sys.argv[1:]
    texts = json.loads(Path(texts_file).read_text())
    tokenizer = Tokenizer.from_file(f"{model}/tokenizer.json")
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_LENGTH)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        file = export_network(model, precision, Path(folder))
        session = onnxruntime.InferenceSession(file, options, ["CPUExecutionProvider"])
    score(texts[:64], tokenizer, session)
    started = time.process_time()
    labels = score(texts, tokenizer, session)
    seconds = time.process_time() - started
    Path(output).write_text(json.dumps({"seconds": seconds, "labels": labels}))


if __name__ == "__main__":
    main()
