"""What pooled dropout and unfused attention are worth in a fine-tuning step on a CPU.

    python tests/bench/finetune_dropout.py [--tokens 64 128 256] [--precision bf16 fp32] [--json]

A step is forward and backward of 32 texts through ELECTRA small's width at 3 layers: as
transformers builds it, then with pooled dropout, then with unfused attention too. CPU seconds of
one thread, the variants in turn; the median of the rounds, and each change as a ratio to the step
before it.
"""

import argparse
import itertools
import json
import statistics
import time

import torch
from transformers import AutoModelForSequenceClassification, ElectraConfig

from model.device import open_device
from model.finetuning.network import cheap_dropout
from model.finetuning.network.forward import open_autocast

TEXTS = 32


class Variant:
    """The same network with none, one or both of the changes."""

    def __init__(self, tokens: int, precision: str, pooled: bool, unfused: bool) -> None:
        torch.manual_seed(0)
        config = ElectraConfig(
            vocab_size=4000, embedding_size=128, hidden_size=256, num_hidden_layers=3,
            num_attention_heads=4, intermediate_size=1024,
        )  # fmt: skip
        self.model = AutoModelForSequenceClassification.from_config(config).train()
        self.noise = cheap_dropout.DropoutNoise(self.model) if pooled else None
        if unfused:
            cheap_dropout.use_unfused_attention(self.model)
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
    kinds = [(False, False), (True, False), (True, True)]
    variants = [Variant(tokens, precision, *kind) for kind in kinds]
    for step, variant in itertools.product(range(rounds + 1), variants):
        variant.run(step)
    stock, pooled, both = (statistics.median(v.seconds[1:]) for v in variants)
    ratios = {"dropout": round(stock / pooled, 3), "attention": round(pooled / both, 3)}
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
