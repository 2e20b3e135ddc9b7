"""What a job takes of the machine, sampled while it runs: the system metrics of its MLflow run.

MLflow's own sampler takes the whole machine: an idle job beside other work had 100% of the CPU by
it, and 0% here. In the jobs it would also cost each of them 1.6 CPU seconds and 165 MB to import
(`python -X importtime -c "import mlflow.system_metrics.metrics.cpu_monitor"`). So the job's process
tree is sampled here, and written beside its metrics for the mirror to send.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

SAMPLES_FILE = "system.jsonl"
FIRST_SECONDS = 2.0
"""Until the first sample: a short job has one too."""
EVERY_SECONDS = 10.0
MEGABYTE = 1e6


@contextmanager
def sample_resources(pid: int, file: Path) -> Iterator[None]:
    """Append a line for every sample of this process and all below it, while the block lasts."""
    over = threading.Event()
    thread = threading.Thread(target=_sample, args=(pid, file, over), name="usage", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _sample(pid: int, file: Path, over: threading.Event) -> None:
    """Append samples until `over` is set; an attempt that continues goes on counting where the last
    one stopped.
    """
    step = len(file.read_bytes().splitlines()) if file.exists() else 0
    cards, seconds, at = _open_gpus(), sum_cpu_seconds(list_process_tree(pid)), time.monotonic()
    wait = FIRST_SECONDS
    while not over.wait(wait):
        wait, processes = EVERY_SECONDS, list_process_tree(pid)
        used, now = sum_cpu_seconds(processes), time.monotonic()
        percent = 100 * max(0.0, used - seconds) / (now - at)
        seconds, at, step = used, now, step + 1
        numbers = {
            "cpu_percent": round(percent, 1),
            **measure_memory_and_disk(processes),
            **_measure_gpus(cards),
        }
        line = {
            "step": step,
            "time": time.time(),
            **{f"system/{name}": value for name, value in numbers.items()},
        }
        with suppress(OSError), open(file, "a") as lines:
            lines.write(json.dumps(line) + "\n")


def list_process_tree(pid: int) -> list[psutil.Process]:
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def sum_cpu_seconds(processes: list[psutil.Process]) -> float:
    """Return the CPU seconds of the processes that live; what ended between two samples is not
    seen.
    """
    total = 0.0
    for process in processes:
        with suppress(psutil.Error):
            total += sum(process.cpu_times()[:2])
    return total


def measure_memory_and_disk(processes: list[psutil.Process]) -> dict[str, float]:
    """Return resident memory and the bytes moved to and from disks since the processes began, in
    megabytes (10^6 bytes).
    """
    resident = read = written = 0
    for process in processes:
        with suppress(psutil.Error):
            resident += process.memory_info().rss
            moved = process.io_counters()
            read, written = read + moved.read_bytes, written + moved.write_bytes
    found = {
        "memory_megabytes": resident,
        "disk_read_megabytes": read,
        "disk_write_megabytes": written,
    }
    return {name: round(value / MEGABYTE, 1) for name, value in found.items()}


def _open_gpus() -> list[Any]:
    """Return NVIDIA's cards, where nvidia-ml-py is installed and finds any."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    except Exception:
        return []


def _measure_gpus(cards: list[Any]) -> dict[str, float]:
    """Return load and memory of each whole card: other jobs on it count too."""
    found: dict[str, float] = {}
    for number, card in enumerate(cards):
        import pynvml

        with suppress(pynvml.NVMLError):
            found[f"gpu_{number}_percent"] = pynvml.nvmlDeviceGetUtilizationRates(card).gpu
            found[f"gpu_{number}_memory_megabytes"] = round(
                pynvml.nvmlDeviceGetMemoryInfo(card).used / MEGABYTE, 1
            )
    return found
