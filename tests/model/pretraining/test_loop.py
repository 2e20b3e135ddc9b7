"""What a window of steps counts as training, and what it leaves out."""

from types import SimpleNamespace

import numpy as np
import pytest

from amazon_electra.model.pretraining import loop


def test_time_spent_on_something_else_counts_neither_by_the_clock_nor_by_the_processor(monkeypatch):
    now = SimpleNamespace(wall=100.0, cpu=10.0)
    clock = SimpleNamespace(monotonic=lambda: now.wall, process_time=lambda: now.cpu)
    monkeypatch.setattr(loop, "time", clock)
    window = loop.Window(SimpleNamespace(wait=lambda: None, read_joules=lambda: 0.0))
    now.wall, now.cpu = 107.0, 14.0
    window.pause(np.array([5.0, 3.0, 0.0]))
    assert window.measure_spent() == pytest.approx((2.0, 1.0, 0.0))
