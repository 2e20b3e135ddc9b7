"""How often a model is timed before a p99 is reported, and whose memory is."""

import pytest

from amazon_electra.model import device
from amazon_electra.model.evaluation import latency
from tests.model.corpora import write_finetuned


def test_a_cost_is_measured_on_its_device(tmp_path, monkeypatch):
    """Reviews are repeated until enough batches are timed, unless the model is slow."""
    assert latency.BATCHES >= 100
    monkeypatch.setattr(latency, "BATCHES", 60)
    monkeypatch.setattr(latency, "REVIEWS", 40)
    folder = write_finetuned(tmp_path)
    gpu = device.Device("fp32")
    monkeypatch.setattr(gpu, "measure_memory_mb", lambda: 2.5)
    monkeypatch.setattr(latency, "open_device", lambda kind, precision: gpu)
    cost = latency.measure_latency(folder / "model", "polarity", folder / "corpus", 1, "cpu")
    assert cost["peak_bytes"] == 2.5 * 2**20
    assert cost["bytes"] == (folder / "model" / "model.safetensors").stat().st_size
    assert cost["bytes"] == pytest.approx(4 * cost["parameters"], rel=0.1)
    assert (cost["reviews"], cost["batch_1"]["batches"], cost["batch_32"]["batches"]) == (
        40,
        80,
        60,
    )
    monkeypatch.setattr(latency, "SECONDS", 0.0)
    once = latency.measure_latency(folder / "model", "polarity", folder / "corpus", 1, "cpu")
    assert (once["batch_1"]["batches"], once["batch_32"]["batches"]) == (40, 2)
    assert 0 < cost["batch_1"]["p50_ms"] <= cost["batch_1"]["p99_ms"]
