"""How often a model is timed before a p99 is told; whose memory is told."""

import time
from types import SimpleNamespace

from torch import nn

from model import device
from model.evaluation import latency
from model.finetuning import encoders, examples


def timed(reviews, batch, seconds=0.0):
    asked = []

    def answer(examples):
        asked.append(len(examples))
        time.sleep(seconds)

    return latency._times(answer, range(reviews), batch), asked


def test_a_p99_is_of_enough_batches():
    times, asked = timed(reviews=latency.REVIEWS, batch=32)
    assert len(times) >= latency.BATCHES >= 100
    assert set(asked) == {32}
    assert latency._percentiles(times)["batches"] == len(times)


def test_a_slow_model_is_timed_on_each_review_once(monkeypatch):
    monkeypatch.setattr(latency, "SECONDS", 0.01)
    times, _ = timed(reviews=10, batch=4, seconds=0.01)
    assert len(times) == 3
    assert 2.0 < times[0] < 100


def test_memory_is_the_devices_own(tmp_path, monkeypatch):
    gpu = device.Device("fp32")
    monkeypatch.setattr(gpu, "memory_mb", lambda: 2.5)
    monkeypatch.setattr(device, "open_device", lambda kind, precision: gpu)
    monkeypatch.setattr(encoders, "load", lambda folder: (nn.Linear(2, 2), SimpleNamespace(labels=("a", "b")), None))
    monkeypatch.setattr(examples, "load", lambda *arguments: [0] * 32)
    monkeypatch.setattr(latency, "_answerer", lambda *arguments: lambda some: None)
    assert latency.measure(tmp_path, "polarity", tmp_path, 1, "cuda")["peak_bytes"] == 2.5 * 2**20
