"""What the processes that train one model together tell each other.

Their numbers are those of torchrun's environment, of `--processes` (launcher.py), or of XLA's
runtime on a TPU pod; a process that is alone is rank 0 of 1.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from beam_jobs.job.errors import TransientError

RENDEZVOUS = "AMAZON_ELECTRA_RENDEZVOUS"
"""Environment variable with the file by which processes of one machine find each other."""
LOST = os.EX_PROTOCOL
"""Exit code, for the launcher alone, of a process that lost another one."""

T = TypeVar("T")


class LostProcess(TransientError):
    """Another process of this training has ended."""


class Rank:
    """One of `world_size` processes; `rank` counts them from 0."""

    backend = "gloo"
    method = "env://"
    """Where the processes find each other."""
    moves_together = False
    """Whether every program has to run in all processes at once, which sums by itself (SPMD)."""

    def __init__(self) -> None:
        self.rank, self.world_size = self.find_rank()
        if self.world_size > 1 and not distributed.is_initialized():
            with _name_losses():
                distributed.init_process_group(
                    self.backend,
                    os.environ.get(RENDEZVOUS, self.method),
                    rank=self.rank,
                    world_size=self.world_size,
                )

    def find_rank(self) -> tuple[int, int]:
        """Return this process's number and how many there are."""
        return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))

    @property
    def is_rank0(self) -> bool:
        return self.rank == 0

    @property
    def is_needed(self) -> bool:
        """Return whether this process has to do what one process can do for all."""
        return self.is_rank0 or self.moves_together

    def all_reduce_sum(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over all processes, in one message."""
        if self.world_size == 1 or self.moves_together:
            return
        tensors = list(tensors)
        flat = torch.cat([tensor.detach().float().flatten() for tensor in tensors])
        with _name_losses():
            distributed.all_reduce(flat)
        for tensor, part in zip(
            tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True
        ):
            tensor.detach().copy_(part.view_as(tensor))

    def begin_sum(self, flat: Tensor) -> Any:
        """Begin to replace a tensor by its sum over all processes; return what `wait_for` takes."""
        with _name_losses():
            return distributed.all_reduce(flat, async_op=True)

    def wait_for(self, work: Any) -> None:
        """Block until a sum that was begun is there (on a GPU: before what is computed next)."""
        with _name_losses():
            work.wait()

    def all_reduce_max(self, *numbers: float) -> tuple[float, ...]:
        """Return the largest of each number over all processes, so that all decide alike."""
        return tuple(self._reduce_numbers(numbers, distributed.ReduceOp.MAX))

    def add_numbers(self, *numbers: float) -> tuple[float, ...]:
        """Return the sum of each number over all processes."""
        return tuple(self._reduce_numbers(numbers, distributed.ReduceOp.SUM))

    def _reduce_numbers(self, numbers: tuple[float, ...], operation: Any) -> Iterable[float]:
        if self.world_size == 1:
            return numbers
        shared = torch.tensor(numbers, dtype=torch.float64)
        with _name_losses():
            distributed.all_reduce(shared, operation)
        return [float(number) for number in shared.tolist()]

    def broadcast_from_rank0(self, number: float) -> float:
        """Return the number that rank 0 holds, so that all processes decide alike."""
        if self.world_size == 1:
            return number
        shared = torch.tensor([number], dtype=torch.float64)
        with _name_losses():
            distributed.broadcast(shared, src=0)
        return float(shared.item())

    def gather_parts(self, part: T) -> list[T]:
        """Return the parts of all processes by rank, the same list in each."""
        if self.world_size == 1:
            return [part]
        parts: list[Any] = [None] * self.world_size
        with _name_losses():
            distributed.all_gather_object(parts, part)
        return parts

    def close(self) -> None:
        if distributed.is_initialized():
            distributed.destroy_process_group()


@contextmanager
def _name_losses() -> Iterator[None]:
    """Raise LostProcess where another process does not answer any more.

    A process of the launcher ends without a word: the launcher tells the cause.
    """
    try:
        yield
    except RuntimeError as error:
        if RENDEZVOUS in os.environ:
            raise SystemExit(LOST) from error
        raise LostProcess(
            f"another process of this training has ended ({str(error).splitlines()[0]}); the same "
            "command continues from the last checkpoint"
        ) from error
