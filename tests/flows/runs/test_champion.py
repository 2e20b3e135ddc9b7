"""Who becomes champion: by the interval; what the registry remembers; the way back."""

import json
from types import SimpleNamespace

import pytest

from amazon_electra.beam_jobs.core.errors import TransientError
from amazon_electra.flows.configuration.form import Promotion
from amazon_electra.flows.runs import champion
from amazon_electra.flows.runs.champion import (
    approve_version,
    decide,
    find_champion,
    promote_model,
)
from amazon_electra.flows.servers.access import find_free_port
from amazon_electra.flows.store.store import Store
from amazon_electra.model.tracking.mlflow_run import Tracking
from amazon_electra.model.tracking.registry import Registry, RegistryAway, name_model
from tests.flows.fakes import FakeStage

NAME = name_model("polarity")


def with_interval(gain):
    value, low, high = gain
    return {"difference": -value, "low": -high, "high": -low}


def compared(gain, macro_f1=(0.0, -0.01, 0.01)):
    """The result of a comparison: log-loss smaller by `gain`, macro-F1 larger, with intervals."""
    ends = dict(zip(("difference", "low", "high"), macro_f1, strict=True))
    return {"n": 400, "loss": with_interval(gain), "macro_f1": ends}


def first_results(gain=(0.1, 0.05, 0.15), macro_f1=0.2, tfidf=None, n_test=400, mark=None):
    """results.json of a model whose log-loss is smaller by `gain` (with its interval) than that of
    the class shares, and by `tfidf` than that of TF-IDF.
    """
    against = {"majority class": gain} | ({"TF-IDF": tfidf} if tfidf else {})
    return {
        "against": {
            name: {"loss": with_interval(value), "macro_f1": {"difference": macro_f1}}
            for name, value in against.items()
        },
        "n_test": n_test,
        "questions": {"giveaway": mark},
    }


BETTER = compared((0.03, 0.01, 0.05))
MARK = {"says": "`list a17` decides.", "is_title": False}


@pytest.mark.parametrize(
    ("results", "found", "promoted"),
    [
        (first_results(), None, True),
        (first_results(tfidf=(-0.01, -0.03, 0.01)), None, True),
        (first_results(tfidf=(-0.03, -0.05, -0.01)), None, False),
        (first_results(gain=(0.1, -0.01, 0.2)), None, False),
        (first_results(macro_f1=-0.01), None, False),
        (first_results(n_test=99), None, False),
        (first_results(mark=MARK), None, False),
        (first_results(mark=MARK | {"is_title": True}), None, True),
        (first_results(), BETTER, True),
        (first_results(mark=MARK), BETTER, False),
        (first_results(), compared((0.03, -0.01, 0.07)), False),
        (first_results(), compared((0.03, 0.01, 0.05), macro_f1=(-0.03, -0.05, -0.01)), False),
        (first_results(), {"n": 150, "refused": "150 test reviews are left"}, False),
    ],
)
def test_the_interval_decides_not_the_difference(results, found, promoted):
    assert decide(results, found).promote is promoted


@pytest.fixture
def tracked(tmp_path, mlflow_uri):
    """A parent run with a model folder as its artifact, made by the name of its encoder;
    `meanwhile` happens in it.
    """
    uri, store = mlflow_uri, Store(tmp_path / "store")

    def run(encoder, low, meanwhile=lambda: None, store=store):
        champion = find_champion(Promotion(), store, uri, "polarity")
        store.publish(FakeStage("model", 0, {}, known=f"of-{encoder}"), {})
        meanwhile()
        tracking = Tracking(uri, f"file://{tmp_path}/artifacts")
        tracking.start(encoder, {}, {})
        model = tmp_path / encoder
        model.mkdir(exist_ok=True)
        (model / "config.json").write_text("{}")
        tracking.log_folder(model, "model")
        tags = {"encoder": encoder, "model": f"of-{encoder}", "report": f"of {encoder}"}
        decision = decide(first_results(), champion and compared((low + 0.01, low, 0.5)))
        registry, wish = Registry(uri, NAME), Promotion()
        asked = registry, "model", decision, tags, champion
        became = promote_model(wish, encoder, tracking, *asked)
        tracking.finish()
        return " became challenger" not in became

    return uri, run


def test_champion_challenger_and_the_way_back(tracked):
    uri, run = tracked
    registry = Registry(uri, NAME)
    assert registry.get_by_alias("champion") == {}
    assert run("first", 0.01)
    assert all(registry.get_by_alias("champion").values()), "no empty tags in the UI"
    assert run("second", 0.02)
    assert not run("third", -0.02)
    assert registry.get_by_alias("champion")["encoder"] == "second"
    assert registry.get_by_alias("challenger")["encoder"] == "third"
    assert run("second", 0.02), "the same model again is the same version"
    assert registry.get_by_alias("champion")["version"] == "2", "however it did against others"
    assert not approve_version(registry, "1", "by hand"), "no run waited for that"
    assert registry.get_by_alias("champion")["model"] == "of-first"
    assert not run("second", 0.02), "what a person set aside stays so until one says otherwise"
    assert "amazon-electra promote" in registry.get_by_alias("challenger")["reason"]
    approve_version(registry, "2", "by hand")
    assert not registry.get_by_alias("champion").get("set_aside")
    approve_version(registry, "3", "by hand")
    assert registry.get_by_alias("champion")["version"] == "3"


def test_one_that_was_not_compared_with_the_champion_of_this_moment_does_not_replace_it(
    tracked, tmp_path
):
    uri, run = tracked
    registry = Registry(uri, NAME)
    assert run("first", 0.01)
    assert not run("slow", 0.01, meanwhile=lambda: run("fast", 0.01))
    assert registry.get_by_alias("champion")["encoder"] == "fast"
    assert "version 2" in registry.get_by_alias("challenger")["reason"]
    assert not run("elsewhere", 0.01, store=Store(tmp_path / "other"))
    assert registry.get_by_alias("champion")["encoder"] == "fast"
    assert "another store" in registry.get_by_alias("challenger")["reason"]


def test_a_registry_that_does_not_answer_is_not_one_without_a_champion(tmp_path):
    away = f"http://somebody:secret@127.0.0.1:{find_free_port()}"
    with pytest.raises(RegistryAway) as caught:
        Registry(away, NAME).get_by_alias("champion")
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value, ConnectionError), "which tasks try again"


def test_an_approved_run_goes_on_once_its_server_is_there(tmp_path, mlflow_uri, prefect_home):
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL, temporary_settings
    from prefect.states import Suspended

    from amazon_electra.flows.domain_adaptation import domain_adaptation

    registry = Registry(mlflow_uri, NAME)
    registry._client.create_registered_model(registry.name)
    version = str(registry._client.create_model_version(registry.name, str(tmp_path)).version)
    deployment = domain_adaptation.to_deployment(name="waits").apply()
    away = f"http://somebody:secret@127.0.0.1:{find_free_port()}/api"
    with get_client(sync_client=True) as client:
        waits = Suspended(timeout_seconds=600)
        run = client.create_flow_run_from_deployment(deployment, state=waits)
        registry.set_tag(version, "waiting", str(run.id))
        with (
            temporary_settings({PREFECT_API_URL: away}),
            pytest.raises(TransientError) as caught,
        ):
            approve_version(registry, version, "it will do")
        assert "\n" not in str(caught.value)
        assert "secret" not in str(caught.value)
        assert registry.get_by_alias("champion")["version"] == version
        assert client.read_flow_run(run.id).state.name == "Suspended"
        assert approve_version(registry, version, "it will do")
        assert client.read_flow_run(run.id).state.name == "Resuming"
    assert not approve_version(registry, version, "it will do"), "it waits no more"


def test_a_model_is_not_lost_to_a_registry_that_refuses(tmp_path, monkeypatch):
    """Whatever MLflow answers, the run says what it made."""
    store = Store(tmp_path / "store")
    model = FakeStage("model", 0, {}, known="0123", title="model")
    report = FakeStage("report", 0, {}, known="4567", title="report")
    for stage, name, content in (
        (model, "results.json", {**first_results(), "task": "stars", "arm": "a", "kind": "words"}),
        (report, "report.json", {"title": "a", "answer": "b"}),
    ):
        store.folder(stage).mkdir(parents=True)
        content |= {"seed": 0, "n_test": 900}
        (store.folder(stage) / name).write_text(json.dumps(content))
        store.publish(stage, {})
    maker = SimpleNamespace(stages=[model], store=store)
    (store.root / "runs").mkdir()
    monkeypatch.setattr(champion, "write_served_model", lambda folder, output: None)
    monkeypatch.setattr(champion, "promote_model", refuse)
    tracking = SimpleNamespace(uri="sqlite:///", log_folder=lambda folder, name: None)
    lines, is_complete = champion.register_models(
        Promotion(), maker, lambda task: None, report, tracking
    )
    assert not is_complete
    assert "Run with id= not found" in lines


def refuse(*asked):
    raise ValueError("Run with id= not found")
