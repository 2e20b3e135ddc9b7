"""The numbers of the steps between two log lines."""

import time

import torch

from model.device import Device
from model.pretraining.electra import Sums


class Window:
    """Sums stay on the device until they are read; reading them is the only wait for it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._begin()

    def _begin(self) -> None:
        self._sums: Sums = {}
        self._norms: list[torch.Tensor] = []
        self._started, self._cpu_started, self._paused = time.monotonic(), time.process_time(), 0.0

    @property
    def steps(self) -> int:
        return len(self._norms)

    def add(self, sums: Sums, gradient_norm: torch.Tensor) -> None:
        self._sums = {name: value + self._sums[name] if self._sums else value for name, value in sums.items()}
        self._norms.append(gradient_norm)

    def pause(self, seconds: float) -> None:
        """Time that was spent on something else than training."""
        self._paused += seconds

    def seconds(self) -> float:
        """Of training, by the clock, once the device has done what it was asked."""
        self._device.wait()
        return max(time.monotonic() - self._started - self._paused, 1e-9)

    def cpu_seconds(self) -> float:
        """Of this process, all threads."""
        return time.process_time() - self._cpu_started

    def close(self) -> tuple[dict[str, float], float]:
        """Sums over all processes and the mean gradient norm; a new window begins."""
        self._device.add_over_processes(self._sums.values())
        read = {name: float(value.item()) for name, value in self._sums.items()}
        norm = float(torch.stack(self._norms).mean().item())
        self._begin()
        return read, norm
