from pathlib import Path

import pytest

from amazon_electra.model.evaluation import significance
from tests.model.synthetic_shards import write_shards


@pytest.fixture(scope="session")
def shards(tmp_path_factory) -> Path:
    """Return a folder of 256 packed sequences of 32 tokens, which tests leave as it is."""
    return write_shards(tmp_path_factory.mktemp("shards"))


@pytest.fixture(scope="session")
def dev_shards(tmp_path_factory) -> Path:
    """Return a folder of 100 packed sequences of the dev split."""
    return write_shards(tmp_path_factory.mktemp("dev"), sequences=100, split="dev")


@pytest.fixture
def fewer_samples(monkeypatch):
    """Simulations run hundreds of studies; 250 samples each are enough for a rate."""
    monkeypatch.setattr(significance, "SAMPLES", 250)
