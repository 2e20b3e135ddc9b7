"""Measures what a fine-tuned model costs: `python -m model.evaluation.latency --model DIR --task
NAME --data DIR --output FILE`.

It times the way from text to answer, tokenizing included, on a fixed number of threads: p50 and p99
per review, one at a time and in batches of 32 (each with the number of batches timed), reviews per
second, parameters, bytes of the weights, and peak memory: on a GPU what torch allocated there; else
the resident memory of the process, Python and torch included (ru_maxrss), so that two models differ
by less than their weights.

`own` is the network as it was fine-tuned. Any other form is the program that `python -m
model.scorer` would export and the scoring job would run, in the batches it would make; counted
besides are the labels that it changes against the network in fp32.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_jobs.job.command import main
from beam_jobs.job.errors import UserError
from beam_jobs.job.files import write_json
from beam_jobs.job.settings import read_options
from model.options import LatencyOptions

if TYPE_CHECKING:
    from model.scoring.forms import Form

REVIEWS = 256
WARM_UP = 16
BATCHES = 200
"""Timed at least, with reviews repeated: the p99 of fewer than a hundred is only the slowest."""
SECONDS = 60.0
"""After this time reviews are not repeated; `batches` says how many were timed."""


def run(argv: list[str] | None = None) -> dict[str, Any]:
    arguments = read_options(LatencyOptions, argv, "python -m model.evaluation.latency", __doc__)

    result = measure_latency(
        arguments.model,
        arguments.task,
        arguments.data,
        arguments.threads,
        arguments.device,
        None if arguments.form == "own" else arguments.form,
    )
    write_json(arguments.output, result)
    return result


def measure_latency(
    folder: Path,
    name: str,
    data: Path,
    threads: int,
    device: str,
    form: "Form | None" = None,
) -> dict[str, Any]:
    """Return the cost of a fine-tuned folder on test reviews of the task `name`.

    In a form of the scorer, of a classifier on a CPU: also how many labels differ.
    """
    import torch

    from model.device import open_device
    from model.finetuning.features.examples import Sampling, load_examples
    from model.finetuning.network import encoders
    from model.finetuning.tasks import find_task
    from model.scoring.forms import convert_form
    from model.scoring.program import prepare_network

    torch.set_num_threads(threads)
    target = open_device(device, "auto") if form is None else open_device("cpu", "fp32")
    model, head, _ = encoders.load_finetuned(folder)
    examples = load_examples(find_task(name, data, head.labels), data, "test", Sampling(REVIEWS))
    answer = _create_answer_function(model.to(target.torch), folder, target)
    parameters = sum(p.numel() for p in model.parameters())
    described: dict[str, Any] = {"bytes": _count_bytes_on_disk(folder)}
    if form is not None:
        if head.shape != "classification":
            raise UserError(f"--form {form}: {name} is no classification; only classifiers have it")
        labels = np.argmax(answer(examples), 1)
        network = convert_form(prepare_network(model, head), form)
        answer = _create_program_function(network, head, folder)
        differ = np.argmax(answer(examples), 1) != labels
        described = {
            "form": form,
            "changed_labels": int(differ.sum()),
            "bytes": _count_bytes(network),
        }
    one, many = _time_batches(answer, examples, 1), _time_batches(answer, examples, 32)
    return {
        **described,
        "reviews": len(examples),
        "device": target.kind,
        "threads": threads,
        "parameters": parameters,
        "batch_1": _summarize_times(one),
        "batch_32": _summarize_times(many),
        "reviews_per_second": 1000 / float(np.mean(many)),
        "peak_bytes": round(target.measure_memory_mb() * 2**20),
    }


def _create_answer_function(model: Any, folder: Path, device: Any) -> Any:
    """Return a function that answers a batch of examples and waits for the device."""
    from model.finetuning.network import encoders
    from model.finetuning.network.forward import predict_logits

    head = encoders.read_task_head(folder)
    encode = head.make_featurizer(encoders.load_tokenizer(str(folder)))

    def answer_batch(examples: Sequence[Any]) -> list[np.ndarray]:
        logits = predict_logits(model, encode(examples), head.shape, device)
        device.wait()
        return logits

    return answer_batch


def _create_program_function(network: Any, head: Any, folder: Path) -> Any:
    """Return a function that answers a batch of examples by the exported network."""
    from model.finetuning.network import encoders
    from model.scoring.agreement import score_features
    from model.scoring.program import make_served_program

    encode = head.make_featurizer(encoders.load_tokenizer(str(folder)))
    program = make_served_program(network, head.max_length)

    def answer_batch(examples: Sequence[Any]) -> np.ndarray:
        return score_features(program, encode(examples), head.max_length)[0]

    return answer_batch


def _count_bytes(model: Any) -> int:
    return sum(t.numel() * t.element_size() for t in model.state_dict().values())


def _count_bytes_on_disk(folder: Path) -> int:
    files = folder.glob("*.safetensors")
    return sum(f.stat().st_size for f in files if not f.name.startswith("teacher"))


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


if __name__ == "__main__":
    main(run)
