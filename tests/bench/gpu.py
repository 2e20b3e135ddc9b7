"""Everything a GPU is to be measured for, in one command that installs nothing and ends in time.

    python tests/bench/gpu.py [--output gpu.json] [--seconds 520] [--rows small minilm …]

Each row is a process of its own, in order of worth, and is in the file once it ends. Texts and
weights are synthetic; the plain step is that of transformers' two models as they come
(pretrain_step.py), in the same process. Without a GPU the rows run at toy sizes on the CPU.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2]))
from amazon_electra.model.config import FinetuningSettings
from amazon_electra.model.device import Device, open_device
from amazon_electra.model.finetuning.features import Feature
from amazon_electra.model.finetuning.network import open_autocast, predict_logits
from amazon_electra.model.finetuning.training import TrainingSetup, train
from amazon_electra.model.pretraining import loop
from amazon_electra.model.pretraining.assembly import build_training
from amazon_electra.model.pretraining.input.batches import prefetch
from amazon_electra.model.pretraining.input.sequences import Shards
from amazon_electra.model.recipes import RECIPES, apply_settings
from tests.bench.pretrain_step import Plain
from tests.model.synthetic_shards import write_shards

Numbers = dict[str, Any]
MINILM = {"layers": "6", "hidden": "384", "intermediate": "1536", "heads": "12", "embedding": "384"}
TOY = {"layers": "1", "hidden": "64", "intermediate": "128", "heads": "1", "embedding": "32"}
TOY |= {"generator_multiplier": "1", "compile": "auto"}
TOY_LENGTH = 32  # tokens
ON_GPU = torch.cuda.is_available()
STEPS, WARM_UP = (6, 4) if ON_GPU else (1, 1)
"""Of each of five timings, and before them: torch.compile compiles in the first step, and the third
is captured as a CUDA graph.
"""
BATCHES = 8
"""Of an epoch: the shards are read anew after each."""
SECONDS_LEFT = 20.0
"""A row is not begun with less."""
ROW_SECONDS = 110.0
"""Of one row at most."""


@dataclass(frozen=True)
class Size:
    """A pre-training that is measured."""

    recipe: str
    batch: int  # sequences
    length: int  # tokens
    plain_batch: int  # what the plain step's logits of every position leave room for
    settings: dict[str, str] = field(default_factory=dict)


SIZES = {
    "small": Size("small", 1024, 128, 128),
    "minilm": Size("small", 1024, 128, 0, MINILM | {"objective": "mlm"}),
    "amazon-base": Size("amazon-base", 512, 128, 128),
    "base-512": Size("base", 128, 512, 32),
}


@contextmanager
def open_training(size: Size, **settings: str) -> Iterator[loop.Training]:
    """Open a training on synthetic shards, at toy size where there is no GPU."""
    recipe = RECIPES[size.recipe]
    vocabulary, batch, length = recipe.vocabulary_size, size.batch, size.length
    chosen = size.settings | settings
    if not ON_GPU:
        chosen, vocabulary, batch, length = chosen | TOY, 200, 4, TOY_LENGTH
    recipe = apply_settings(recipe, chosen | {"batch": str(batch), "steps": "10000"})
    device = open_device("auto", recipe.pretraining.precision)
    with tempfile.TemporaryDirectory() as folder:
        rows = BATCHES * batch if ON_GPU else 64
        made = write_shards(
            Path(folder), rows, vocabulary, length, words=length // 3, fills=True, group=batch
        )
        yield build_training(recipe, Shards.open(made), device, Path(folder) / "output")


def time_steps(step: Callable[[], Any], device: Device, steps: int = STEPS) -> float:
    """Return the median seconds of a step, by the clock, of five times `steps`."""
    for _ in range(min(steps, WARM_UP)):
        step()
    took = []
    for _ in range(5):
        device.wait()
        started = time.perf_counter()
        for _ in range(steps):
            step()
        device.wait()
        took.append((time.perf_counter() - started) / steps)
    return statistics.median(took)


def measure_pretraining(name: str) -> Numbers:
    """Measure the steps of a training as it takes them, its input too, and the plain step."""
    size, numbers = SIZES[name], Numbers()
    with open_training(size) as training:
        device, batches = training.device, prefetch(training.batches.iterate_steps(0))
        training.model.train()
        tokens, products = [], []

        def step() -> None:
            arrays = next(batches)
            loop.run_step(training, arrays)
            training.totals.step += 1
            tokens.append(float(arrays["real_total"]))
            products.append(training.count_matrix_flops(arrays))

        for _ in range(WARM_UP):
            step()
        device.wait()
        tokens.clear()
        seconds = time_steps(step, device)
        positions = training.config.batch * (size.length if ON_GPU else TOY_LENGTH)
        numbers |= {
            "device_batch": training.count_sequences_at_once(),
            "graphs": training.graphs is not None,
            "tokens_per_second": statistics.mean(tokens) / seconds,
            "positions_per_second": positions / seconds,
            "matrix_flops_per_second": statistics.mean(products) / seconds,
            "step_seconds": seconds,
            "peak_memory_mb": device.measure_memory_mb(),
        }
        batches.close()
        if size.plain_batch:
            vocabulary = len(training.model.embeddings.word)
            numbers |= measure_plain(size, device, vocabulary)
            theirs = numbers["plain_positions_per_second"]
            numbers["times_plain"] = positions / seconds / theirs
    return numbers


def measure_plain(size: Size, device: Device, vocabulary: int) -> Numbers:
    """Measure the plain step, its rows full."""
    rows, length = (size.plain_batch, size.length) if ON_GPU else (4, TOY_LENGTH)
    recipe = apply_settings(RECIPES[size.recipe], size.settings if ON_GPU else TOY)
    plain = Plain(recipe, vocabulary, device)
    ids = torch.randint(5, vocabulary, (rows, length), device=device.torch)

    def step() -> None:
        with open_autocast(device):
            plain.step(ids, torch.ones_like(ids), 4)

    seconds = time_steps(step, device, 2)
    return {
        "plain_batch": rows,
        "plain_step_seconds": seconds,
        "plain_positions_per_second": ids.numel() / seconds,
    }


def compare_losses() -> Numbers:
    """Compare the losses of compiled steps with the others', and a resumed run with a whole one."""
    size = Size("small", 64, 128, 0, {"dropout": "0"})
    losses: dict[str, list[float]] = {}
    for compiles in ("off", "auto"):
        with open_training(size, compile=compiles) as training:
            losses[compiles] = take_steps(training, 8)
    with open_training(size, dropout="0.1") as whole:
        take_steps(whole, 4)
        state = whole.copy_state()
        expected = take_steps(whole, 4), whole.copy_state().tensors
        whole.restore_state(state)
        again = take_steps(whole, 4), whole.copy_state().tensors
    pairs = zip(losses["off"], losses["auto"], strict=True)
    differing = [n for n, t in expected[1].items() if not torch.equal(t, again[1][n])]
    return {
        "losses": losses,
        "largest_difference": max(abs(a - b) / a for a, b in pairs),
        "resumed_losses": [expected[0], again[0]],
        "resumed_tensors_that_differ": [len(differing), len(expected[1]), differing[:8]],
    }


def take_steps(training: loop.Training, steps: int) -> list[float]:
    """Return the losses of the next steps."""
    training.model.train()
    losses = []
    for arrays in islice(training.batches.iterate_steps(training.totals.step), steps):
        taken = loop.run_step(training, arrays)
        assert taken
        sums = {name: float(value) for name, value in taken[0].items()}
        losses.append(training.model.compute_means(sums)["loss"])
        training.totals.step += 1
    return losses


def build_classifier() -> nn.Module:
    from transformers import AutoModelForSequenceClassification, BertConfig

    torch.manual_seed(0)
    shape = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12}
    shape |= {"intermediate_size": 1536}
    if not ON_GPU:
        shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    return AutoModelForSequenceClassification.from_config(BertConfig(**shape))


def draw_texts(examples: int, longest: int = 128) -> list[Feature]:
    """Return texts as long as reviews: log-normal, with the median of the 2018 dump (48 tokens)."""
    lengths = np.exp(np.random.default_rng(0).normal(np.log(48), 1.1, examples))
    generator = np.random.default_rng(1)
    return [
        Feature(i, [generator.integers(5, 4000, n).tolist()], [[0] * n], i % 2)
        for i, n in enumerate(lengths.clip(5, longest).astype(int))
    ]


def measure_finetuning() -> Numbers:
    """Measure one epoch of MiniLM's shape."""
    device, longest = open_device("auto", "auto"), 128
    examples = 22_000 if ON_GPU else 64
    texts = draw_texts(examples, longest)
    model = build_classifier().to(device.torch)
    settings = FinetuningSettings(epochs=1, batch=32, max_length=longest)
    training = TrainingSetup(
        features=texts,
        shape="classification",
        settings=settings,
        seed=0,
        device=device,
        score_dev=lambda model: score_dev(model, texts[:1000], device),
        report=lambda step, numbers: None,
    )
    started = time.perf_counter()
    train(model, training, 1e-4)
    seconds = time.perf_counter() - started
    return {"examples_per_second": examples / seconds, "peak_memory_mb": device.measure_memory_mb()}


def score_dev(model: nn.Module, texts: list[Feature], device: Device) -> dict[str, float]:
    logits = predict_logits(model, texts, "classification", device)
    hits = [row.argmax() == text.target for row, text in zip(logits, texts, strict=True)]
    return {"accuracy": sum(hits) / len(hits)}


def measure_scoring() -> Numbers:
    """Measure the logits of texts of like tokens, from token ids to arrays."""
    device = open_device("auto", "auto")
    texts = draw_texts(60_000 if ON_GPU else 64)
    model = build_classifier().to(device.torch).eval()
    predict_logits(model, texts[:2000], "classification", device)
    started = time.perf_counter()
    predict_logits(model, texts, "classification", device)
    return {
        "reviews_per_second": len(texts) / (time.perf_counter() - started),
        "peak_memory_mb": device.measure_memory_mb(),
    }


ROWS: dict[str, Callable[[], Numbers]] = {
    "small": lambda: measure_pretraining("small"),
    "amazon-base": lambda: measure_pretraining("amazon-base"),
    "minilm": lambda: measure_pretraining("minilm"),
    "losses": compare_losses,
    "finetuning": measure_finetuning,
    "scoring": measure_scoring,
    "base-512": lambda: measure_pretraining("base-512"),
}
"""In order of worth."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("gpu.json"))
    parser.add_argument("--seconds", type=float, default=520.0, help="begin nothing after so many")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--row", choices=ROWS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.row:
        print(json.dumps(ROWS[chosen.row]()))
        return
    ends = time.monotonic() + chosen.seconds
    name = torch.cuda.get_device_name() if ON_GPU else "cpu, toy sizes"
    found: Numbers = {"device": name, "torch": torch.__version__, "rows": {}}
    for row in chosen.rows:
        left = ends - time.monotonic()
        is_late = left < SECONDS_LEFT
        found["rows"][row] = (
            {"error": "no time left"} if is_late else run_row(row, min(left, ROW_SECONDS))
        )
        chosen.output.write_text(json.dumps(found, indent=2) + "\n")
        print(row, json.dumps(found["rows"][row]), flush=True)


def run_row(row: str, seconds: float) -> Numbers:
    """Return what a row's process prints, or its error."""
    command = [sys.executable, __file__, "--row", row]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {seconds:.0f} s"}
    if done.returncode:
        return {"error": done.stderr[-1500:]}
    numbers: Numbers = json.loads(done.stdout.splitlines()[-1])
    return {name: number for name, number in numbers.items() if number == number}


if __name__ == "__main__":
    main()
