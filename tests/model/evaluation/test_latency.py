"""How often a model is timed before a p99 is told, and whose memory is told."""

import pytest

from amazon_electra.model import device
from amazon_electra.model.evaluation import latency
from tests.model.corpora import write_finetuned


class Clock:
    """A clock that only the answers move on."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


def time_answers(monkeypatch, reviews, batch, seconds):
    """Return milliseconds per review and batch sizes of a model that takes `seconds` for each."""
    clock, sizes = Clock(), []
    monkeypatch.setattr(latency, "time", clock)

    def answer(examples):
        sizes.append(len(examples))
        clock.now += seconds

    return latency._time_batches(answer, range(reviews), batch), sizes


def test_a_p99_is_of_enough_batches(monkeypatch):
    times, sizes = time_answers(monkeypatch, latency.REVIEWS, batch=32, seconds=0.001)
    assert len(times) >= latency.BATCHES >= 100
    assert set(sizes) == {32}
    assert latency._summarize_times(times)["batches"] == len(times)


def test_a_slow_model_is_timed_on_each_review_once(monkeypatch):
    times, sizes = time_answers(monkeypatch, reviews=10, batch=4, seconds=latency.SECONDS)
    milliseconds = 1000 * latency.SECONDS
    assert times.tolist() == pytest.approx([milliseconds / 4, milliseconds / 4, milliseconds / 2])
    assert sizes[-3:] == [4, 4, 2]


def test_a_cost_is_of_the_model_on_its_device(tmp_path, monkeypatch):
    """Each batch size is timed once here."""
    monkeypatch.setattr(latency, "BATCHES", 1)
    monkeypatch.setattr(latency, "REVIEWS", 40)
    folder = write_finetuned(tmp_path)
    gpu = device.Device("fp32")
    monkeypatch.setattr(gpu, "measure_memory_mb", lambda: 2.5)
    monkeypatch.setattr(latency, "open_device", lambda kind, precision: gpu)
    cost = latency.measure_latency(folder / "model", "polarity", folder / "corpus", 1, "cpu")
    assert cost["peak_bytes"] == 2.5 * 2**20
    assert cost["bytes"] == (folder / "model" / "model.safetensors").stat().st_size
    assert cost["bytes"] == pytest.approx(4 * cost["parameters"], rel=0.1)
    assert (cost["reviews"], cost["batch_1"]["batches"], cost["batch_32"]["batches"]) == (40, 40, 2)
    assert 0 < cost["batch_1"]["p50_ms"] <= cost["batch_1"]["p99_ms"]
