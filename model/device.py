"""Opens the CPU, a CUDA GPU or an XLA device behind one interface. Of several processes each holds
the whole model; gradients are summed, since losses are divided by the totals of the whole batch.
"""

import os
import resource
import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from amazon_electra.beam_jobs.core.command import keep_freed_memory
from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.model.processes import Rank

MAX_FP32_ERROR = 1e-5
"""Error of a product of 256 × 256 matrices: fp32 has 3e-7, bf16 3e-3."""
CPU_INFO = Path("/proc/cpuinfo")


class Device(Rank):
    """The CPU, and what all devices have in common."""

    kind = "cpu"
    fused_optimizer = True
    cores = 1  # that share the rows of a batch
    compiles = False  # torch.compile was slower than the plain step on CPUs (0.9 times its speed)

    def __init__(self, precision: str) -> None:
        self.torch = torch.device("cpu")
        # "medium" takes fp32 products to oneDNN, on AMD's CPUs twice as fast as MKL.
        torch.set_float32_matmul_precision("medium")
        self.bf16 = precision == "bf16" or (precision == "auto" and self._has_bf16())
        if precision == "fp32" and not (self.kind == "cpu" and are_products_fp32()):
            torch.set_float32_matmul_precision("highest")
        if self.kind == "cpu":
            keep_freed_memory()
        super().__init__()

    def _has_bf16(self) -> bool:
        return has_fast_bf16_products()

    @property
    def dtype(self) -> torch.dtype:
        """The type of matrix products; weights and their updates are always fp32."""
        return torch.bfloat16 if self.bf16 else torch.float32

    @property
    def has_document_attention(self) -> bool:
        """Return whether compiled attention leaves out what shares no document (FusedAttention)."""
        return False

    def put(self, arrays: Mapping[str, NDArray[np.generic] | Tensor]) -> dict[str, Tensor]:
        """Return the arrays as tensors on the device; of a batch it is this process's share."""
        return {name: torch.as_tensor(array, device=self.torch) for name, array in arrays.items()}

    def put_whole(self, arrays: dict[str, NDArray[np.generic]]) -> dict[str, Tensor]:
        return self.put(arrays)

    def seed_generators(self, number: int) -> None:
        """Seed the device's random numbers (dropout), differently in each process."""
        torch.manual_seed(number * self.world_size + self.rank)

    def end_step(self) -> None: ...

    def wait(self) -> None: ...

    def measure_memory_mb(self) -> float:
        """Return the peak memory of this process in MiB; on a GPU that of the GPU."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (2**20 if sys.platform == "darwin" else 2**10)  # macOS counts in bytes


class Cuda(Device):
    kind = "cuda"
    backend = "cpu:gloo,cuda:nccl"
    compiles = True

    def __init__(self, precision: str) -> None:
        super().__init__(precision)
        self.torch = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(self.torch)
        torch.backends.cuda.enable_cudnn_sdp(False)  # it plans each shape of a batch anew
        # one for all: a CUDA graph cannot be captured on the default stream
        torch.cuda.set_stream(torch.cuda.Stream(self.torch))

    def _has_bf16(self) -> bool:
        return torch.cuda.is_bf16_supported(including_emulation=False)

    @property
    def has_document_attention(self) -> bool:
        return self.bf16

    def put(self, arrays: Mapping[str, NDArray[np.generic] | Tensor]) -> dict[str, Tensor]:
        """Copy the arrays from pinned memory while the device computes."""
        pinned = {name: torch.as_tensor(array).pin_memory() for name, array in arrays.items()}
        return {name: tensor.to(self.torch, non_blocking=True) for name, tensor in pinned.items()}

    def wait(self) -> None:
        torch.cuda.synchronize()

    def measure_memory_mb(self) -> float:
        return torch.cuda.max_memory_allocated(self.torch) / 2**20


@cache
def has_fast_bf16_products() -> bool:
    """Return whether this CPU multiplies bf16 faster than fp32: with AMX, and AMD's with AVX-512
    BF16 (a Xeon whose AMX a virtual machine hides takes 1.8 times as long). What the CPU is
    decides, not a timing: timed beside other work, one process in six found such a Xeon fast.
    """
    if not CPU_INFO.is_file():  # not Linux
        return False
    lines = (line.partition(":") for line in CPU_INFO.read_text(encoding="utf-8").splitlines())
    processor = {name.strip(): words.split() for name, _, words in lines}
    flags, is_amd = processor.get("flags", []), processor.get("vendor_id") == ["AuthenticAMD"]
    return "amx_bf16" in flags or (is_amd and "avx512_bf16" in flags)


def are_products_fp32() -> bool:
    """Return whether fp32 products are made in fp32: with "medium" AMX makes them of bf16."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(256, 256, generator=generator) for _ in range(2))
    exact = left.double() @ right.double()
    return bool(((left @ right - exact).norm() / exact.norm()) < MAX_FP32_ERROR)


class Xla(Device):
    """One core of a TPU, or XLA's CPU client with PJRT_DEVICE=CPU."""

    kind = "xla"
    fused_optimizer = False

    def __init__(self, precision: str) -> None:
        import torch_xla
        import torch_xla.runtime

        self._xla = torch_xla
        super().__init__(precision)
        self.torch = torch_xla.device()

    def find_rank(self) -> tuple[int, int]:
        """Return 0 and 1: one core has one process; UserError on a host of a pod."""
        hosts = self._xla.runtime.process_count()
        require(hosts <= 1, f"one core, and a pod has {hosts} hosts; use xla-spmd", "device", "xla")
        return 0, 1

    def _has_bf16(self) -> bool:
        return os.environ.get("PJRT_DEVICE", "").upper() == "TPU"

    def seed_generators(self, number: int) -> None:
        super().seed_generators(number)
        self._xla.manual_seed(number)

    def end_step(self) -> None:
        """Cut the graph, so that each step is one graph and is compiled once."""
        self._xla.sync()

    def wait(self) -> None:
        self._xla.sync(wait=True)


class XlaSpmd(Xla):
    """All cores of a host or pod as one (SPMD): XLA splits the batch and sums the gradients. Every
    host runs the same programs, each with its share; XLA's runtime lets them find each other.
    """

    method = "xla://"
    moves_together = True

    def __init__(self, precision: str) -> None:
        import torch_xla.runtime

        torch_xla.runtime.use_spmd()
        super().__init__(precision)
        from torch_xla.distributed import spmd

        self._spmd = spmd
        devices = torch_xla.runtime.global_runtime_device_count()
        self.cores = devices // self.world_size
        self._mesh = spmd.Mesh(np.arange(devices), (devices,), ("data",))

    def find_rank(self) -> tuple[int, int]:
        """Return which host of the pod this is, and how many there are."""
        import torch_xla.distributed.xla_backend  # noqa: F401  # knows the method

        return self._xla.runtime.process_index(), self._xla.runtime.process_count()

    def put(self, arrays: Mapping[str, NDArray[np.generic] | Tensor]) -> dict[str, Tensor]:
        from torch_xla.core import xla_model

        batch = {}
        for name, array in arrays.items():
            rows, tensors = self._split_rows(array.ndim), [torch.as_tensor(array)]
            sharding = self._spmd.ShardingSpec(self._mesh, rows, minibatch=array.ndim > 0)
            [batch[name]] = xla_model.send_cpu_data_to_device(tensors, self.torch, sharding)
        return batch

    def put_whole(self, arrays: dict[str, NDArray[np.generic]]) -> dict[str, Tensor]:
        """Return arrays that every host holds whole as tensors; each core has some of the rows."""
        batch = super().put(arrays)
        for tensor in batch.values():
            if tensor.ndim:
                self._spmd.mark_sharding(tensor, self._mesh, self._split_rows(tensor.ndim))
        return batch

    def _split_rows(self, dimensions: int) -> tuple[str | None, ...]:
        return ("data", *[None] * (dimensions - 1)) if dimensions else ()


def open_device(kind: str, precision: str) -> Device:
    """Return the device of a kind (auto, cpu, cuda, xla, xla-spmd); UserError if it is absent."""
    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    is_there = kind != "cuda" or torch.cuda.is_available()
    require(is_there, "torch sees no CUDA device here; use `device cpu`", "device", "cuda")
    is_there = not kind.startswith("xla") or find_spec("torch_xla") is not None
    require(is_there, "torch_xla is not installed here; install the extra [tpu]", "device", "xla")
    return {"cpu": Device, "cuda": Cuda, "xla": Xla, "xla-spmd": XlaSpmd}[kind](precision)


def expect_document_attention(kind: str, precision: str) -> bool:
    """Return whether a device of this kind will have `has_document_attention`, unopened."""
    is_gpu = kind == "cuda" or (kind == "auto" and torch.cuda.is_available())
    return is_gpu and precision != "fp32"
