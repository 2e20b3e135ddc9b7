"""The registry of a store in which nothing was registered yet."""

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.model.tracking.registry import Registry, find_models, name_model


def test_asking_for_an_alias_makes_no_registry(tmp_path):
    """Making MLflow's database took most of a minute on a busy machine."""
    uri = f"sqlite:///{tmp_path}/mlflow/mlflow.db"
    registry = Registry(uri, name_model("stars"))
    assert registry.get_by_alias("champion") == {}
    assert registry.list_aliases() == []
    with pytest.raises(UserError) as raised:
        find_models(uri, "champion")
    assert (raised.value.field, raised.value.value) == ("model.alias", "champion")
    assert not list(tmp_path.iterdir())
