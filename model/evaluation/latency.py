"""Measures what a fine-tuned model costs: milliseconds from text to answer on fixed threads, alone
and in batches of 32, reviews a second, parameters, bytes, and peak memory.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from amazon_electra.model.device import open_device
from amazon_electra.model.finetuning.examples import Example, Sampling, load_examples
from amazon_electra.model.finetuning.network import load_finetuned, predict_logits, prepare_network
from amazon_electra.model.finetuning.tasks import find_task

REVIEWS = 256
WARM_UP = 16
BATCHES = 200
"""Timed at least, with reviews repeated: the p99 of fewer than a hundred is only the slowest."""
SECONDS = 60.0
"""After this time reviews are not repeated; `batches` says how many were timed."""


def measure_latency(
    folder: Path, name: str, data: Path, threads: int, device: str
) -> dict[str, Any]:
    """Return the cost of a fine-tuned folder on test reviews of the task `name`."""
    torch.set_num_threads(threads)
    target = open_device(device, "auto")
    model, head, tokenizer = load_finetuned(folder)
    prepare_network(model, head, target)
    encode = head.make_featurizer(tokenizer)
    examples = load_examples(find_task(name, data, head.labels), data, "test", Sampling(REVIEWS))

    def answer(part: Sequence[Example]) -> None:
        predict_logits(model, encode(part), head.shape, target)
        target.wait()

    one, many = _time_batches(answer, examples, 1), _time_batches(answer, examples, 32)
    return {
        "bytes": sum(file.stat().st_size for file in folder.glob("*.safetensors")),
        "reviews": len(examples),
        "device": target.kind,
        "threads": threads,
        "parameters": sum(p.numel() for p in model.parameters()),
        "batch_1": _summarize_times(one),
        "batch_32": _summarize_times(many),
        "reviews_per_second": 1000 / float(np.mean(many)),
        "peak_bytes": round(target.measure_memory_mb() * 2**20),
    }


def _time_batches(answer: Any, examples: Sequence[Any], batch: int) -> np.ndarray:
    """Return milliseconds per review, one number for each batch."""
    batches = [examples[i : i + batch] for i in range(0, len(examples), batch)]
    for part in batches[:WARM_UP]:
        answer(part)
    times: list[float] = []
    begun = time.perf_counter()
    while not times or (len(times) < BATCHES and time.perf_counter() - begun < SECONDS):
        for part in batches:
            started = time.perf_counter()
            answer(part)
            times.append(1000 * (time.perf_counter() - started) / len(part))
    return np.array(times)


def _summarize_times(times: np.ndarray) -> dict[str, float]:
    p50, p99 = np.percentile(times, [50, 99])
    return {"p50_ms": float(p50), "p99_ms": float(p99), "batches": len(times)}
