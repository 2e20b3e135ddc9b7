import pytest

from tests.model.pretraining.adaptation.published import write_all


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Return a folder with a published encoder, and shards of its vocabulary."""
    return write_all(tmp_path_factory.mktemp("made"))
