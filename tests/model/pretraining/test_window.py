"""What a window of steps counts as training, and what it leaves out."""

import time
from dataclasses import dataclass

from model.pretraining.window import Window


@dataclass
class Idle:
    """A device that is never behind."""

    def wait(self):
        pass


def compute_for(seconds):
    began = time.process_time()
    while time.process_time() - began < seconds:
        pass


def test_time_spent_on_something_else_counts_neither_by_the_clock_nor_by_the_processor():
    started, window = time.monotonic(), Window(Idle())
    compute_for(0.05)
    began, cpu_began = time.monotonic(), time.process_time()
    compute_for(0.4)
    paused = time.monotonic() - began
    window.pause(paused, time.process_time() - cpu_began)
    assert 0.05 <= window.measure_cpu_seconds() < 0.25
    assert window.measure_seconds() <= time.monotonic() - started - paused
