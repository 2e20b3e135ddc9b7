"""Fine-tuning with length-grouped batches against padding every batch to the maximum: examples per second.

python tests/bench/finetune_batches.py [--reviews FILE] [--threads 1] [--examples 512]

Lengths are those of real reviews where a fastText file is given, else log-normal with the same median (reviews of the
2018 dump: median 48 tokens, a tenth over 200).
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, ElectraConfig

from model.device import open_device
from model.finetuning.batches import Feature
from model.finetuning.config import FinetuningSettings
from model.finetuning.loop import Training, train

MEDIAN, SPREAD = 48, 1.1
"""Tokens, and the standard deviation of their logarithm."""


def lengths(reviews: Path | None, examples: int, longest: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    if reviews is None:
        drawn = np.exp(generator.normal(np.log(MEDIAN), SPREAD, examples))
    else:
        lines = reviews.read_text(encoding="utf-8", errors="replace").splitlines()
        words = np.array([1.3 * len(line.split()) for line in lines])
        drawn = generator.choice(words, examples)
    return np.clip(drawn, 5, longest).astype(int)


def examples_per_second(tokens: np.ndarray, longest: int, grouped: bool) -> float:
    """The second of two epochs' worth would be warmer; both ways start equally cold, so one is enough."""
    torch.manual_seed(0)
    config = ElectraConfig(
        vocab_size=4000, embedding_size=128, hidden_size=128, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=512, max_position_embeddings=512,
    )  # fmt: skip
    model = AutoModelForSequenceClassification.from_config(config)
    generator = np.random.default_rng(1)
    features = [Feature(i, [generator.integers(5, 4000, n).tolist()], [[0] * n], i % 2) for i, n in enumerate(tokens)]
    training = Training(
        features=features,
        shape="classification",
        settings=FinetuningSettings(epochs=1, max_length=longest, length_grouped=grouped),
        seed=0,
        device=open_device("cpu", "auto"),
        dev_score=lambda _: {"accuracy": 0.0},
        report=lambda step, numbers: None,
    )
    started = time.process_time()
    train(model, training, 1e-4)
    return len(tokens) / (time.process_time() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reviews", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--examples", type=int, default=512)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print("| longest (tokens) | mean (tokens) | padded to it (examples/CPU s) | length-grouped | times |")
    print("| --- | --- | --- | --- | --- |")
    for longest in (128, 256, 512):
        tokens = lengths(arguments.reviews, arguments.examples, longest)
        padded, grouped = (examples_per_second(tokens, longest, how) for how in (False, True))
        print(
            f"| {longest} | {tokens.mean():.0f} | {padded:.0f} | {grouped:.0f} | {grouped / padded:.1f} |", flush=True
        )


if __name__ == "__main__":
    main()
