"""cpu | cuda | xla: the only place that knows which one it is. `python -m model.device cuda`: whether it is here.

Several processes (torchrun) each hold a device and the whole model; gradients are added up, since every loss is already
divided by the totals of the whole batch.
"""

import math
import os
import resource
import sys
import time
from collections.abc import Iterable
from importlib.util import find_spec

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed, nn

from model.command import UserMistake, main
from model.pretraining.attention import BOUNDARIES, boundaries

CUDA_PEAK_FLOPS = {"B200": 2.25e15, "H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "A10": 125e12}


class Device:
    """The CPU, and what all devices have in common."""

    kind = "cpu"
    backend = "gloo"
    fused_optimizer = True
    compiles = False  # torch.compile was slower than the plain step on CPUs (0.9 times its speed)

    def __init__(self, precision: str) -> None:
        self.torch = torch.device("cpu")
        self._peak = 0.0
        self.bf16 = precision == "bf16" or (precision == "auto" and self._multiplies_bf16())
        # "medium" takes fp32 products to oneDNN: on CPUs without bf16 1.7 times as fast as MKL, at fp32 accuracy.
        torch.set_float32_matmul_precision("highest" if precision == "fp32" else "medium")
        self.rank, self.ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        if self.ranks > 1 and not distributed.is_initialized():
            distributed.init_process_group(self.backend)

    def _multiplies_bf16(self) -> bool:
        return torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def dtype(self) -> torch.dtype:
        """The type of the states and the matrix products; weights and their updates are always fp32."""
        return torch.bfloat16 if self.bf16 else torch.float32

    def put(self, arrays: dict[str, NDArray[np.generic]]) -> dict[str, Tensor]:
        return {name: torch.as_tensor(array, device=self.torch) for name, array in arrays.items()}

    def move(self, model: nn.Module) -> nn.Module:
        return model.to(self.torch)

    def seed(self, number: int) -> None:
        """Random numbers drawn on the device from now on (dropout); each process draws its own."""
        torch.manual_seed(number * self.ranks + self.rank)

    def add_over_processes(self, tensors: Iterable[Tensor]) -> None:
        """Replaces each tensor by its sum over the processes, in one message."""
        if self.ranks == 1:
            return
        tensors = list(tensors)
        flat = torch.cat([tensor.detach().float().flatten() for tensor in tensors])
        distributed.all_reduce(flat)
        for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.detach().copy_(part.view_as(tensor))

    def from_first(self, number: float) -> float:
        """What process 0 holds: where a decision hangs on a clock, all must take the same one."""
        if self.ranks == 1:
            return number
        told = torch.tensor([number], dtype=torch.float64)
        distributed.broadcast(told, src=0)
        return float(told.item())

    def end_step(self) -> None:
        """Called once after each optimizer step."""

    def wait(self) -> None:
        """Until everything asked of the device is done."""

    def peak_flops(self) -> float:
        """Operations per second this process could do at most: what utilization is measured against. On a CPU nobody
        prints it, so the best of a few square products of the size caches like is taken."""
        if self._peak:
            return self._peak
        left, right = (torch.ones(1024, 1024, dtype=self.dtype) for _ in range(2))
        best = math.inf
        for _ in range(4):
            started = time.process_time()
            left @ right
            best = min(best, time.process_time() - started)
        self._peak = 2 * 1024**3 / best * torch.get_num_threads()
        return self._peak

    def memory_mb(self) -> float:
        """The most this process ever held, MB of 2**20 bytes: of the machine's memory, on a GPU of the GPU's."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # Linux counts in KiB, macOS in bytes
        return peak / (2**20 if sys.platform == "darwin" else 2**10)

    def close(self) -> None:
        if distributed.is_initialized():
            distributed.destroy_process_group()


class Cuda(Device):
    kind = "cuda"
    backend = "cpu:gloo,cuda:nccl"
    compiles = True

    def __init__(self, precision: str) -> None:
        super().__init__(precision)
        self.torch = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(self.torch)

    def _multiplies_bf16(self) -> bool:
        return torch.cuda.is_bf16_supported(including_emulation=False)

    def put(self, arrays: dict[str, NDArray[np.generic]]) -> dict[str, Tensor]:
        """Copied from pinned memory while the device computes; in bf16 with what the fused attention needs."""
        if self.bf16 and "documents" in arrays:
            offsets = boundaries(arrays["documents"])
            arrays = arrays | ({BOUNDARIES: offsets} if offsets is not None else {})
        pinned = {name: torch.as_tensor(array).pin_memory() for name, array in arrays.items()}
        return {name: tensor.to(self.torch, non_blocking=True) for name, tensor in pinned.items()}

    def wait(self) -> None:
        torch.cuda.synchronize()

    def memory_mb(self) -> float:
        return torch.cuda.max_memory_allocated(self.torch) / 2**20

    def peak_flops(self) -> float:
        """Dense bf16 operations per second, from NVIDIA's data sheets."""
        name = torch.cuda.get_device_name(self.torch)
        return next((flops for part, flops in CUDA_PEAK_FLOPS.items() if part in name), math.nan)


class Xla(Device):
    """A TPU, or the CPU client of XLA with PJRT_DEVICE=CPU."""

    kind = "xla"
    fused_optimizer = False

    def __init__(self, precision: str) -> None:
        import torch_xla

        super().__init__(precision)
        self._xla = torch_xla
        self.torch = torch_xla.device()

    def _multiplies_bf16(self) -> bool:
        return os.environ.get("PJRT_DEVICE", "").upper() == "TPU"

    def seed(self, number: int) -> None:
        super().seed(number)
        self._xla.manual_seed(number)

    def end_step(self) -> None:
        """Cuts the graph here: one graph per step, compiled once."""
        self._xla.sync()

    def wait(self) -> None:
        self._xla.sync(wait=True)

    def peak_flops(self) -> float:
        return math.nan


class XlaSpmd(Xla):
    """All devices of the host as one: the batch is split over them, XLA adds the gradients (SPMD)."""

    def __init__(self, precision: str) -> None:
        import torch_xla.runtime

        torch_xla.runtime.use_spmd()
        super().__init__(precision)
        from torch_xla.distributed import spmd

        self._spmd = spmd
        devices = torch_xla.runtime.global_runtime_device_count()
        self._mesh = spmd.Mesh(np.arange(devices), (devices,), ("data",))

    def put(self, arrays: dict[str, NDArray[np.generic]]) -> dict[str, Tensor]:
        batch = super().put(arrays)
        for tensor in batch.values():
            if tensor.ndim:
                self._spmd.mark_sharding(tensor, self._mesh, ("data", *[None] * (tensor.ndim - 1)))
        return batch


def open_device(kind: str, precision: str) -> Device:
    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    demand(kind)
    return {"cpu": Device, "cuda": Cuda, "xla": Xla, "xla-spmd": XlaSpmd}[kind](precision)


def demand(kind: str) -> None:
    """UserMistake where there is no such device. It is not taken: another process may be at work on it."""
    if kind == "cuda" and not torch.cuda.is_available():
        raise UserMistake("--device cuda: torch sees no CUDA device here; use --device cpu")
    if kind.startswith("xla") and find_spec("torch_xla") is None:
        raise UserMistake("--device xla: torch_xla is not installed here; install the extra [tpu]")


def run() -> dict[str, str]:
    demand(sys.argv[1])
    return {"device": sys.argv[1]}


if __name__ == "__main__":
    main(run)
