"""How often a model is timed before a p99 is told."""

import time

from model.evaluation import latency


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
