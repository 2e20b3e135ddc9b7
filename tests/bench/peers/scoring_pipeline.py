"""The side of transformers' pipeline in scoring.py, as its documentation has it, with nothing of
ours: `scoring_pipeline.py MODEL PRECISION TEXTS OUT`. Sorting the texts by length is to its favour.
"""

import json
import sys
import time
from pathlib import Path

import torch
from transformers import pipeline

BATCH, MAX_LENGTH = 32, 128


def main() -> None:
    model, precision, texts_file, output = sys.argv[1:]
    texts = json.loads(Path(texts_file).read_text())
    torch.set_num_threads(1)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    classify = pipeline("text-classification", model=model, dtype=dtype, device="cpu")
    options = {"batch_size": BATCH, "truncation": True, "max_length": MAX_LENGTH}
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    classify(texts[:64], **options)
    started = time.process_time()
    found = classify([texts[i] for i in order], **options)
    seconds = time.process_time() - started
    number_of = classify.model.config.label2id
    labels = [0] * len(texts)
    for i, one in zip(order, found, strict=True):
        labels[i] = int(number_of[one["label"]])
    Path(output).write_text(json.dumps({"seconds": seconds, "labels": labels}))


if __name__ == "__main__":
    main()
