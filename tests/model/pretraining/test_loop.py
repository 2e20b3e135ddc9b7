"""What counts as training, and what is left out."""

from amazon_electra.model.pretraining.loop import Meter


def test_what_a_pause_takes_is_not_counted():
    readings = iter([100.0, 102.0, 107.0, 110.0, 111.0])
    meter = Meter(lambda: next(readings))
    meter.pause()
    meter.resume()
    assert meter.take() == 5.0
    assert meter.take() == 1.0
