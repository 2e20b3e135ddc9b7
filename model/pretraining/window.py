"""Collects the numbers of the steps between two log lines."""

import time

import torch

from model.device import Device
from model.pretraining.network.masked_prediction import Sums


class Window:
    """Keeps sums on the device until they are read; reading them is the only wait for it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._begin()

    def _begin(self) -> None:
        self._sums: Sums = {}
        self._norms: list[torch.Tensor] = []
        self.matrix_flops = 0.0  # over all processes
        self._started, self._paused = time.monotonic(), 0.0
        self._cpu_started, self._cpu_paused = time.process_time(), 0.0

    @property
    def steps(self) -> int:
        return len(self._norms)

    def add(self, sums: Sums, gradient_norm: torch.Tensor, matrix_flops: float) -> None:
        """Add the sums of one step, unread."""
        self._sums = {name: v + self._sums[name] if self._sums else v for name, v in sums.items()}
        self._norms.append(gradient_norm)
        self.matrix_flops += matrix_flops

    def pause(self, seconds: float, cpu_seconds: float) -> None:
        """Leave out time that was spent on something else than training."""
        self._paused += seconds
        self._cpu_paused += cpu_seconds

    def measure_seconds(self) -> float:
        """Return the wall-clock seconds of training, after the device has caught up."""
        self._device.wait()
        return max(time.monotonic() - self._started - self._paused, 1e-9)

    def measure_cpu_seconds(self) -> float:
        """Return the CPU seconds of training in this process, all threads."""
        return max(time.process_time() - self._cpu_started - self._cpu_paused, 0.0)

    def read_sums(self) -> tuple[dict[str, float], float]:
        """Return sums over all processes and the mean gradient norm; begin a new window."""
        self._device.all_reduce_sum(self._sums.values())
        read = {name: float(value.item()) for name, value in self._sums.items()}
        norm = float(torch.stack(self._norms).mean().item())
        self._begin()
        return read, norm
