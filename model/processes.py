"""Several processes that train one model. Started by torch.multiprocessing and not torchrun, which
opens ports on all interfaces; on several machines torchrun starts the same command.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, multiprocessing

from amazon_electra.beam_jobs.core.command import USER_ERROR, main
from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError, require
from amazon_electra.beam_jobs.core.nesting import read_json
from amazon_electra.model.children import GRACE_SECONDS

RENDEZVOUS = "AMAZON_ELECTRA_RENDEZVOUS"
"""Environment variable with the file by which processes of one machine find each other."""
LOST = os.EX_PROTOCOL
"""Exit code, for `run_processes` alone, of a process that lost another one."""
SETTLE_SECONDS = 2.0
"""By which a process that lost another one ends later, so that the other is the cause."""
TERMINATED = (143, -15)
"""Exit codes after a SIGTERM."""

RESULT = "result.json"
T = TypeVar("T")


class LostProcess(TransientError):
    """Another process of this training has ended."""


class Rank:
    """One of `world_size` processes; `rank` counts them from 0."""

    backend = "gloo"
    method = "env://"
    """Address at which the processes find each other."""
    moves_together = False
    """Whether every program has to run in all processes at once, which sums by itself (SPMD)."""

    def __init__(self) -> None:
        self.rank, self.world_size = self.find_rank()
        if self.world_size > 1 and not distributed.is_initialized():
            address = os.environ.get(RENDEZVOUS, self.method)
            with name_losses():
                distributed.init_process_group(
                    self.backend, address, rank=self.rank, world_size=self.world_size
                )

    def find_rank(self) -> tuple[int, int]:
        return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))

    @property
    def is_rank0(self) -> bool:
        return self.rank == 0

    def all_reduce_sum(self, tensors: Iterable[Tensor]) -> None:
        if self.world_size == 1 or self.moves_together:
            return
        tensors = list(tensors)
        flat = torch.cat([tensor.detach().float().flatten() for tensor in tensors])
        with name_losses():
            distributed.all_reduce(flat)
        parts = flat.split([tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.detach().copy_(part.view_as(tensor))

    def all_reduce_max(self, number: float) -> float:
        """Return the largest of a number over all processes, so that all decide alike."""
        return self._reduce(number, distributed.ReduceOp.MAX)

    def add_number(self, number: float) -> float:
        """Return the sum of a number over all processes."""
        return self._reduce(number, distributed.ReduceOp.SUM)

    def _reduce(self, number: float, operation: Any) -> float:
        if self.world_size == 1:
            return number
        shared = torch.tensor(number, dtype=torch.float64)
        with name_losses():
            distributed.all_reduce(shared, operation)
        return float(shared)

    def gather_parts(self, part: T) -> list[T]:
        if self.world_size == 1:
            return [part]
        parts: list[Any] = [None] * self.world_size
        with name_losses():
            distributed.all_gather_object(parts, part)
        return parts

    def close(self) -> None:
        if distributed.is_initialized():
            distributed.destroy_process_group()


@contextmanager
def name_losses() -> Iterator[None]:
    """Raise LostProcess where another process is gone, or exit as `run_processes` expects."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        if RENDEZVOUS in os.environ:
            time.sleep(SETTLE_SECONDS)
            raise SystemExit(LOST) from error
        raise LostProcess(
            f"another process of this training has ended ({str(error).splitlines()[0]}); the same "
            "command continues from the last checkpoint"
        ) from error


def check_processes(device: str, processes: int) -> None:
    is_one = not device.startswith("xla")
    require(is_one, "one process drives all cores of a TPU host", "processes", processes)
    gpus = torch.cuda.device_count() if device != "cpu" else 0
    fit = processes <= gpus or not (gpus or device == "cuda")
    require(fit, f"{gpus} GPUs here, and each takes one process", "processes", processes)


def run_processes(run: Callable[[], Any], processes: int) -> dict[str, Any]:
    """Call a function in several processes; return the fields of the data class that rank 0
    returns, which reports as a single process does. Where one fails, or a SIGTERM comes, all get a
    SIGTERM and time for a checkpoint.
    """
    with tempfile.TemporaryDirectory(prefix="processes-") as name:
        folder = Path(name)
        given = (run, processes, folder)
        started = multiprocessing.spawn(_run_rank, given, nprocs=processes, join=False)
        try:
            while not started.join(grace_period=GRACE_SECONDS):
                pass
        except multiprocessing.ProcessExitedException as failed:
            codes = [process.exitcode or 0 for process in started.processes]
            raise _build_error(codes, failed.error_index, folder) from None
        finally:
            for process in started.processes:
                process.terminate()
            for process in started.processes:
                process.join(GRACE_SECONDS)
                process.kill()
        result: dict[str, Any] = read_json(folder / RESULT)
        return result


def _run_rank(rank: int, run: Callable[[], Any], processes: int, folder: Path) -> None:
    """Run the job as one of several processes, its result in a file, and end with its exit code."""
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes}
    os.environ |= {name: str(number) for name, number in places.items()}
    os.environ[RENDEZVOUS] = f"file://{folder / 'rendezvous'}"
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if rank:
        os.environ["AMAZON_ELECTRA_PROGRESS"] = "none"
    for descriptor in (1, 2) if rank else (1,):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)

    def run_and_report() -> dict[str, Any]:
        try:
            result = run()
        except (UserError, JobFailed) as error:
            about = error.describe() if isinstance(error, UserError) else {"message": str(error)}
            (folder / f"{rank}.json").write_text(json.dumps(about), encoding="utf-8")
            raise
        if rank == 0:
            (folder / RESULT).write_text(json.dumps(asdict(result)), encoding="utf-8")
        return {}

    main(run_and_report)


def _build_error(codes: Sequence[int], first: int, folder: Path) -> BaseException:
    """Return the error of the job by exit codes; `first` ended badly first, rank 0 has printed."""
    causes = [rank for rank, code in enumerate(codes) if code not in (0, LOST, *TERMINATED)]
    rank = causes[0] if causes else first
    code = codes[rank] if codes[rank] >= 0 else 128 - codes[rank]
    who = f"process {rank + 1} of {len(codes)}"
    if code > 128:
        goes_on = "the same command continues from the last checkpoint"
        return TransientError(f"{who} was ended by signal {code - 128}; {goes_on}")
    if code == LOST:
        return TransientError(f"the {len(codes)} processes lost each other; run the command again")
    if rank == 0:
        return SystemExit(code)
    file, cause = folder / f"{rank}.json", {"message": f"failed with exit code {code}"}
    if file.exists():
        cause = read_json(file)
    if code == USER_ERROR:
        return UserError(**cause)
    kind = TransientError if code == os.EX_TEMPFAIL else JobFailed
    return kind(f"{who}: {cause['message']}")
