"""Which model `score` takes from a registry, and one in which nothing was registered yet."""

from amazon_electra.model.tracking.registry import NEWEST, Registry, find_models, name_model
from tests.refusals import refuses


def test_asking_for_an_alias_makes_no_registry(tmp_path):
    """Making MLflow's database took most of a minute on a busy machine."""
    uri = f"sqlite:///{tmp_path}/mlflow/mlflow.db"
    registry = Registry(uri, name_model("stars"))
    assert registry.get_by_alias("champion") == {}
    assert registry.list_aliases() == {}
    with refuses(field="model"):
        find_models(uri)
    assert not list(tmp_path.iterdir())


def test_the_champion_is_taken_or_else_the_newest(tmp_path, mlflow_uri):
    registry = Registry(mlflow_uri, name_model("label:reason"))
    registry._client.create_registered_model(registry.name)
    for fingerprint in ("a" * 16, "b" * 16):
        tags = {"model": fingerprint, "task": "label:reason"}
        registry._client.create_model_version(registry.name, str(tmp_path), tags=tags)
    registry.set_challenger("1", "few test reviews")
    [found] = find_models(mlflow_uri, "reason")
    assert (found["version"], found["model"], found["role"]) == ("2", "b" * 16, NEWEST)
    registry.promote("1", "it will do")
    [found] = find_models(mlflow_uri, "reason")
    assert (found["version"], found["role"]) == ("1", "champion")
