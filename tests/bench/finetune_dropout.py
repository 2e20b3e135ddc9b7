"""What pooled dropout, unfused attention and fused layers are worth in a fine-tuning step on a CPU.

    python tests/bench/finetune_dropout.py [--tokens 64 128 256] [--precision bf16 fp32] [--json]

A step is forward and backward of 32 texts through ELECTRA small's width at 3 layers: as
transformers builds it, then with pooled dropout, then with unfused attention too, then with fused
layers in its place, and last with a last layer for the first token alone. CPU seconds of one
thread, the variants in turn; the median of the rounds, and each change as a ratio to the step
before it. Memory that is freed is kept for all of them.
"""

import argparse
import itertools
import json
import statistics
import time

import torch
from transformers import AutoModelForSequenceClassification, ElectraConfig

from model.device import open_device
from model.finetuning.network import cheap_dropout, fused_layers
from model.finetuning.network.forward import open_autocast

TEXTS = 32


VARIANTS = ("stock", "dropout", "attention", "layers", "first_token")
"""Each has what those before it have, but fused layers have an attention of their own."""


class Variant:
    """The same network with some of the changes."""

    def __init__(self, tokens: int, precision: str, kind: str) -> None:
        torch.manual_seed(0)
        config = ElectraConfig(
            vocab_size=4000, embedding_size=128, hidden_size=256, num_hidden_layers=3,
            num_attention_heads=4, intermediate_size=1024,
        )  # fmt: skip
        self.model = AutoModelForSequenceClassification.from_config(config).train()
        self.noise = None if kind == "stock" else cheap_dropout.DropoutNoise(self.model)
        if kind == "attention":
            cheap_dropout.use_unfused_attention(self.model)
        if kind in ("layers", "first_token"):
            fused_layers.use_fused_layers(self.model, kind == "first_token")
        self.device = open_device("cpu", precision)
        ids = torch.randint(5, 4000, (TEXTS, tokens))
        self.inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        self.seconds: list[float] = []

    def run(self, step: int) -> None:
        """Make one step and keep its CPU seconds."""
        started = time.process_time()
        if self.noise:
            self.noise.begin_step(0, step)
        with open_autocast(self.device):
            loss = self.model(**self.inputs, labels=torch.ones(TEXTS, dtype=torch.long)).loss
        loss.backward()
        self.seconds.append(time.process_time() - started)


def measure(tokens: int, precision: str, rounds: int) -> dict[str, float | str]:
    """Return the median milliseconds of a step as it comes, and what either change gains."""
    variants = [Variant(tokens, precision, kind) for kind in VARIANTS]
    for step, variant in itertools.product(range(rounds + 1), variants):
        variant.run(step)
    medians = [statistics.median(variant.seconds[1:]) for variant in variants]
    ratios = {
        kind: round(before / after, 3)
        for kind, (before, after) in zip(VARIANTS[1:], itertools.pairwise(medians), strict=True)
    }
    stock = medians[0]
    return {"tokens": tokens, "precision": precision, "stock_ms": round(1000 * stock), **ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--precision", nargs="+", default=["bf16", "fp32"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for tokens, precision in itertools.product(arguments.tokens, arguments.precision):
        rows.append(measure(tokens, precision, arguments.rounds))
        print(" ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    if arguments.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
