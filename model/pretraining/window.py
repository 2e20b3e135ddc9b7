"""The numbers of the steps between two log lines."""

import time

import torch

from model.device import Device
from model.pretraining.electra import Sums


class Window:
    """Sums stay on the device until they are read; reading them is the only wait for it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._sums: Sums = {}
        self._norms: list[torch.Tensor] = []
        self._started = time.monotonic()
        self._paused = 0.0

    def add(self, sums: Sums, gradient_norm: torch.Tensor) -> None:
        self._sums = {name: value + self._sums[name] if self._sums else value for name, value in sums.items()}
        self._norms.append(gradient_norm)

    def pause(self, seconds: float) -> None:
        """Time that was spent on something else than training."""
        self._paused += seconds

    def close(self) -> tuple[dict[str, float], float, int, float]:
        """Sums over all processes, mean gradient norm, steps, seconds of training; a new window begins."""
        self._device.add_over_processes(self._sums.values())
        read = {name: float(value.item()) for name, value in self._sums.items()}
        norm, steps = float(torch.stack(self._norms).mean().item()), len(self._norms)
        seconds = time.monotonic() - self._started - self._paused
        self._sums, self._norms, self._started, self._paused = {}, [], time.monotonic(), 0.0
        return read, norm, steps, max(seconds, 1e-9)
