"""Who becomes champion: by the interval, on every named task; what the registry remembers; the way back."""

import pytest

from flows.parameters import Promotion
from flows.promotion import consider, decide
from model.tracking import Registry, Tracking


def difference(task, value, low, high, a="pre-trained", b="champion"):
    return {"task": task, "a": a, "b": b, "difference": value, "low": low, "high": high}


@pytest.mark.parametrize(
    ("differences", "margin", "promoted"),
    [
        ([difference("polarity", 0.03, 0.01, 0.05)], 0, True),
        ([difference("polarity", 0.03, -0.01, 0.07)], 0, False),
        ([difference("polarity", 0.00, -0.01, 0.01)], 2, True),
        ([difference("polarity", 0.00, -0.03, 0.03)], 2, False),
        ([difference("polarity", -0.03, -0.05, -0.01, a="champion", b="pre-trained")], 0, True),
        ([difference("stars", 0.03, 0.01, 0.05)], 0, False),
        ([difference("polarity", 0.03, 0.01, 0.05, b="random")], 0, False),
        ([], 0, False),
    ],
)
def test_the_interval_decides_not_the_difference(differences, margin, promoted):
    assert decide(differences, ["polarity"], margin, "champion").promote is promoted


def test_every_named_task_has_to_be_better():
    both = [difference("polarity", 0.03, 0.01, 0.05), difference("stars", 0.01, -0.01, 0.03)]
    decision = decide(both, ["polarity", "stars"], 0, "champion")
    assert not decision.promote
    assert "polarity: better than champion (+3.0 points, +1.0 to +5.0)" in decision.reason
    assert "stars: not shown to be better" in decision.reason


@pytest.fixture
def tracked(tmp_path):
    """A parent run with a model folder as its artifact, made by the name of its encoder."""
    uri = f"sqlite:///{tmp_path}/mlflow.db"

    def run(encoder, low):
        tracking = Tracking(uri, f"file://{tmp_path}/artifacts")
        tracking.start(encoder, {}, {})
        model = tmp_path / encoder
        model.mkdir(exist_ok=True)
        (model / "config.json").write_text("{}")
        tracking.log_folder(model, "model")
        report = {"title": encoder, "answer": "", "differences": [difference("polarity", low + 0.01, low, 0.5)]}
        tags = {"encoder": encoder, "scorer": f"of-{encoder}"}
        decision = consider(Promotion(mode="automatic"), report, tracking, "champion", tags)
        tracking.finish()
        return decision.promote

    return uri, run


def test_champion_challenger_and_the_way_back(tracked):
    uri, run = tracked
    registry = Registry(uri)
    assert registry.having("champion") == {}
    with pytest.raises(ValueError, match="nothing to go back to"):
        registry.rollback()
    assert run("first", 0.01)
    assert run("second", 0.02)
    assert not run("third", -0.02)
    assert registry.having("champion")["encoder"] == "second"
    assert registry.having("champion")["replaced"] == "1"
    assert registry.having("challenger")["encoder"] == "third"
    assert "not shown to be better" in registry.having("challenger")["reason"]
    assert run("second", 0.02), "the same model again is the same version"
    assert registry.having("champion")["version"] == "2"
    assert registry.rollback() == ("2", "1")
    assert registry.having("champion")["scorer"] == "of-first"
    registry.promote(registry.find("thi"), "by hand")
    assert registry.having("champion")["version"] == "3"
    assert registry.having("challenger") == {}
    with pytest.raises(ValueError, match="no version 9"):
        registry.find("9")
