"""What a fine-tuned model costs: `python -m model.evaluation.latency --model DIR --task NAME --data DIR --output FILE`.

From text to answer, tokenizing included, on a fixed number of threads: p50 and p99 per review one at a time and in
batches of 32 (each with how many batches it is of), reviews per second, parameters, bytes on disk, and the most memory
the process held: on a GPU what torch had allocated there; else resident, Python and torch included (ru_maxrss), so that
two models differ by less than their weights.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from model.command import main
from model.json_file import write_json

REVIEWS = 256
WARM_UP = 16
BATCHES = 200
"""Timed at least, the reviews as often as it takes: a p99 of fewer than a hundred is only the slowest."""
SECONDS = 60.0
"""After which a slow model's reviews are not repeated; `batches` says how many were timed."""


def run(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m model.evaluation.latency", description=__doc__)
    parser.add_argument("--model", required=True, type=Path, metavar="DIR")
    parser.add_argument("--task", required=True, metavar="NAME")
    parser.add_argument("--data", required=True, type=Path, metavar="DIR")
    parser.add_argument("--output", required=True, type=Path, metavar="FILE")
    parser.add_argument("--threads", type=int, default=1, help="of the CPU (default 1)")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda", "xla"))
    arguments = parser.parse_args(argv)

    result = measure(arguments.model, arguments.task, arguments.data, arguments.threads, arguments.device)
    write_json(arguments.output, result)
    return result


def measure(folder: Path, name: str, data: Path, threads: int, device: str) -> dict[str, Any]:
    import torch

    from model.device import open_device
    from model.finetuning import encoders
    from model.finetuning.examples import Sampling, load
    from model.finetuning.tasks import find

    torch.set_num_threads(threads)
    target = open_device(device, "auto")
    model, head, _ = encoders.load(folder)
    examples = load(find(name, data, head.labels), data, "test", Sampling(REVIEWS))
    answer = _answerer(model.to(target.torch), folder, target)
    one, many = _times(answer, examples, 1), _times(answer, examples, 32)
    return {
        "device": target.kind,
        "threads": threads,
        "parameters": sum(p.numel() for p in model.parameters()),
        "bytes": sum(f.stat().st_size for f in folder.glob("*.safetensors") if not f.name.startswith("teacher")),
        "batch_1": _percentiles(one),
        "batch_32": _percentiles(many),
        "reviews_per_second": 1000 / float(np.mean(many)),
        "peak_bytes": round(target.memory_mb() * 2**20),
    }


def _answerer(model: Any, folder: Path, device: Any) -> Any:
    from model.finetuning import encoders
    from model.finetuning.batches import Encoder
    from model.finetuning.loop import outputs

    head, tokenizer = encoders.read_head(folder), encoders.load_tokenizer(str(folder))
    encode = Encoder(tokenizer, head.shape, head.max_length, head.stride, head.clean)

    def answer(examples: Sequence[Any]) -> None:
        outputs(model, encode(examples), head.shape, device)
        device.wait()

    return answer


def _times(answer: Any, examples: Sequence[Any], batch: int) -> np.ndarray:
    """Milliseconds per review, one number a batch."""
    batches = [examples[i : i + batch] for i in range(0, len(examples), batch)]
    for some in batches[:WARM_UP]:
        answer(some)
    times: list[float] = []
    begun = time.perf_counter()
    while not times or (len(times) < BATCHES and time.perf_counter() - begun < SECONDS):
        for some in batches:
            started = time.perf_counter()
            answer(some)
            times.append(1000 * (time.perf_counter() - started) / len(some))
    return np.array(times)


def _percentiles(times: np.ndarray) -> dict[str, float]:
    p50, p99 = np.percentile(times, [50, 99])
    return {"p50_ms": float(p50), "p99_ms": float(p99), "batches": len(times)}


if __name__ == "__main__":
    main(run)
