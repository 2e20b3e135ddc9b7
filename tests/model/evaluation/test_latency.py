"""How often a model is timed before a p99 is told; whose memory is told; which form is timed."""

from types import SimpleNamespace

import numpy as np
import pytest
from torch import nn

from beam_jobs.scoring.classifier import UnitScorer, score_texts
from model import device, scorer
from model.evaluation import latency
from model.finetuning.features import examples
from model.finetuning.network import encoders
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


def test_memory_is_the_devices_own(tmp_path, monkeypatch):
    gpu = device.Device("fp32")
    monkeypatch.setattr(gpu, "measure_memory_mb", lambda: 2.5)
    monkeypatch.setattr(device, "open_device", lambda kind, precision: gpu)
    monkeypatch.setattr(
        encoders,
        "load_finetuned",
        lambda folder: (nn.Linear(2, 2), SimpleNamespace(labels=("a", "b")), None),
    )
    monkeypatch.setattr(examples, "load_examples", lambda *arguments: [0] * 32)
    monkeypatch.setattr(latency, "_create_answer_function", lambda *arguments: lambda some: None)
    assert (
        latency.measure_latency(tmp_path, "polarity", tmp_path, 1, "cuda")["peak_bytes"]
        == 2.5 * 2**20
    )


@pytest.mark.parametrize("form", ["bf16", "int8"])
def test_a_form_is_timed_as_the_scoring_job_runs_it(form, tmp_path, monkeypatch):
    folder = write_finetuned(tmp_path)
    timed = []

    def keep_answer(answer, examples, batch):
        timed.append((answer, examples))
        return np.ones(1)

    monkeypatch.setattr(latency, "_time_batches", keep_answer)
    words = ["--model", str(folder / "model"), "--task", "polarity"]
    words += ["--data", str(folder / "corpus"), "--output", str(tmp_path / "cost.json")]
    cost = latency.run([*words, "--form", form])
    described = scorer.run(
        ["--model", str(folder / "model"), "--output", str(tmp_path / "scorer"), "--form", form]
    )
    assert cost["form"] == described["form"] == form
    answer, some = timed[0]
    network, _, _ = encoders.load_finetuned(folder / "model")
    own = latency._create_answer_function(
        network, folder / "model", device.open_device("cpu", "fp32")
    )
    changed = np.argmax(own(some), 1) != np.argmax(answer(some), 1)
    assert cost["changed_labels"] == changed.sum() < len(some) / 5
    served = UnitScorer(str(tmp_path / "scorer"), "").load_model()
    for example in some[:5]:
        expected = score_texts([example.text], served)
        np.testing.assert_allclose(answer([example]), expected, atol=1e-6)
