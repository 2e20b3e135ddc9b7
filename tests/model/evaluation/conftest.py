"""Spare simulations of studies most of their bootstrap samples."""

import pytest

from amazon_electra.model.evaluation import significance


@pytest.fixture
def fewer_samples(monkeypatch):
    """Simulations run hundreds of studies; 250 samples each are enough for a rate."""
    monkeypatch.setattr(significance, "SAMPLES", 250)
