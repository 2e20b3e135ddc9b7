"""Fine-tuning here against the plain transformers loop that pads to the maximum: examples per CPU
second.

python tests/bench/finetune_batches.py [--reviews FILE] [--vocabulary DIR] [--threads 1]
[--examples 512] [--rounds 3]

Lengths are those of real reviews where a dump of JSON lines is given (`text` or `reviewText`, cut
into word pieces by the vocabulary), else log-normal with the median of the 2018 dump (48 tokens, a
tenth over 200). The plain loop: the network as transformers builds it, with its own attention and
dropout, AdamW, clipping, bf16 where ours has it. "padded" is ours with every batch padded to the
maximum: what the batches alone are worth. CPU seconds; the median of the rounds, taken in turns.
"""

import argparse
import gzip
import itertools
import json
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import AutoModelForSequenceClassification, ElectraConfig, PreTrainedModel

from model.config import FinetuningSettings
from model.device import open_device
from model.finetuning.features import Feature, collate_features
from model.finetuning.heads import replace_last_layer
from model.finetuning.network import (
    UNFUSED_ATTENTION_TOKENS,
    load_tokenizer,
    open_autocast,
    use_unfused_attention,
)
from model.finetuning.training import Training, train

MEDIAN, SPREAD = 48, 1.1
"""Tokens, and the standard deviation of their logarithm."""
BATCH = 32


def lengths(reviews: Path | None, vocabulary: Path | None, examples: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    if reviews is None or vocabulary is None:
        return np.exp(generator.normal(np.log(MEDIAN), SPREAD, examples))
    tokenizer = load_tokenizer(str(vocabulary))
    with gzip.open(reviews, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in itertools.islice(file, 10 * examples)]
    texts = [text for row in rows if (text := row.get("text") or row.get("reviewText"))]
    chosen = generator.choice(len(texts), examples, replace=False)
    return np.array([len(e.ids) for e in tokenizer.encode_batch([texts[i] for i in chosen])])


def build_network(longest: int) -> PreTrainedModel:
    torch.manual_seed(0)
    config = ElectraConfig(
        vocab_size=4000, embedding_size=128, hidden_size=128, num_hidden_layers=3,
        num_attention_heads=2, intermediate_size=512, max_position_embeddings=max(512, longest),
    )  # fmt: skip
    return AutoModelForSequenceClassification.from_config(config)


def features(tokens: np.ndarray) -> list[Feature]:
    generator = np.random.default_rng(1)
    return [
        Feature(i, [generator.integers(5, 4000, n).tolist()], [[0] * n], i % 2)
        for i, n in enumerate(tokens)
    ]


def ours(tokens: np.ndarray, longest: int, grouped: bool) -> float:
    model, device = build_network(longest), open_device("cpu", "auto")
    replace_last_layer(model)
    if longest <= UNFUSED_ATTENTION_TOKENS:
        use_unfused_attention(model)
    training = Training(
        features=features(tokens),
        shape="classification",
        settings=FinetuningSettings(
            epochs=1, batch=BATCH, max_length=longest, length_grouped=grouped
        ),
        seed=0,
        device=device,
        score_dev=lambda _: {"accuracy": 0.0},
        report=lambda step, numbers: None,
    )
    started = time.process_time()
    train(model, training, 1e-4)
    return len(tokens) / (time.process_time() - started)


def plain(tokens: np.ndarray, longest: int) -> float:
    """One epoch of the loop that everybody writes."""
    model, device = build_network(longest), open_device("cpu", "auto")
    all_of_them = features(tokens)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    started = time.process_time()
    order = np.random.default_rng(0).permutation(len(tokens))
    model.train()
    for i in range(0, len(order), BATCH):
        inputs, targets = collate_features(
            [all_of_them[j] for j in order[i : i + BATCH]], "classification", longest
        )
        with open_autocast(device):
            loss = model(**inputs, labels=targets).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return len(tokens) / (time.process_time() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reviews", type=Path, help="a dump, JSON lines, gz")
    parser.add_argument("--vocabulary", type=Path, help="a folder that model.vocabulary wrote")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--examples", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--longest", type=int, nargs="+", default=[128, 256, 512])
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    drawn = lengths(arguments.reviews, arguments.vocabulary, arguments.examples)
    print(
        "| longest | mean tokens | plain, padded (examples/CPU s) | ours, padded | ours "
        "| times plain | times padded |"
    )
    print("|" + " --- |" * 7)
    for longest in arguments.longest:
        tokens = np.clip(drawn, 5, longest).astype(int)
        found: dict[str, list[float]] = {"plain": [], "padded": [], "ours": []}
        for _ in range(arguments.rounds):
            found["plain"].append(plain(tokens, longest))
            found["padded"].append(ours(tokens, longest, False))
            found["ours"].append(ours(tokens, longest, True))
        p, q, r = (statistics.median(found[name]) for name in found)
        ratios = f"{r / p:.2f} | {r / q:.2f}"
        print(
            f"| {longest} | {tokens.mean():.0f} | {p:.0f} | {q:.0f} | {r:.0f} | {ratios} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
