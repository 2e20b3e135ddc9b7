"""Searches of settings: spaces with their mistakes named, trials compared fairly, killed searches
that go on.
"""

import json

import pytest

from amazon_electra.model.finetuning import search
from amazon_electra.model.finetuning.config import FinetuneConfig
from tests.refusals import refuses

optuna = pytest.importorskip("optuna")

SETTINGS = ("epochs=1", "n_train=64", "n_dev=30", "max_length=32", "layer_decay=1.0")
SPACE = {"learning_rate": {"low": 1e-4, "high": 2e-2, "log": True}, "batch": [16, 32]}


def look(made, name, trials, *, space=None, **settings):
    """Search with these settings besides SETTINGS."""
    texts = dict(setting.split("=") for setting in SETTINGS) | settings
    config = FinetuneConfig(task="polarity", settings=texts)
    places = {"encoder": made / "electra"}
    output = made / f"search-{name}"
    return search.search(config, space or SPACE, trials, made / "corpus", output, **places)


def tried(made, name):
    storage = f"sqlite:///{made}/search-{name}/optuna.db"
    study = optuna.load_study(study_name="search", storage=storage)
    ended = [trial for trial in study.trials if trial.state.is_finished()]
    return [(search.make_settings(trial.params), trial.value, trial.state.name) for trial in ended]


def test_a_killed_search_tries_the_same(made, monkeypatch):
    look(made, "whole", 5)
    run_once, started = search.run_trial, []

    def die_in_the_fourth(trial, *given):
        started.append(trial)
        if len(started) == 4:
            search.draw_settings(trial, given[-1])
            raise KeyboardInterrupt
        return run_once(trial, *given)

    with monkeypatch.context() as patched:
        patched.setattr(search, "run_trial", die_in_the_fourth)
        with pytest.raises(KeyboardInterrupt):
            look(made, "killed", 5)
    best = look(made, "killed", 5)
    trials = tried(made, "killed")
    assert best.trials == 5
    complete = [(value, settings) for settings, value, state in trials if state == "COMPLETE"]
    dev_accuracy = max(value for value, _ in complete)
    assert best.content["dev_accuracy"] == dev_accuracy
    assert json.loads((made / "search-killed" / "best.json").read_text()) == best.content
    assert (dev_accuracy, best.settings) in complete
    settings = [one for one, *_ in trials]
    assert settings == [one for one, *_ in tried(made, "whole")]
    assert len({*map(json.dumps, settings)}) == 5


class Trial:
    """Notes what it is told, and may be behind the others."""

    def __init__(self, is_behind=False):
        self.reported, self.is_behind = [], is_behind

    def report(self, value, part):
        self.reported.append((part, value))

    def should_prune(self):
        return self.is_behind


@pytest.mark.parametrize(
    ("steps", "reported"),
    [
        (12, [(1, 3), (2, 5), (3, 8), (4, 10), (5, 12)]),
        (20, [(1, 4), (2, 8), (3, 12), (4, 16), (5, 20)]),
        (3, [(1, 1), (3, 2), (5, 3)]),
    ],
)
def test_a_score_is_compared_after_each_fifth(steps, reported):
    """A trial that is behind ends there; what has come to its end has a score all the same."""
    trial, behind = Trial(), Trial(is_behind=True)
    report, report_behind = (search.make_reporter(one, "accuracy") for one in (trial, behind))
    for step in range(1, steps + 1):
        report(step / steps, {"dev_accuracy": step})
    assert trial.reported == reported
    report_behind(0.1, {"dev_accuracy": 0.5})
    with pytest.raises(optuna.TrialPruned):
        report_behind(0.2, {"dev_accuracy": 0.5})
    report_behind(1.0, {"dev_accuracy": 0.5})


@pytest.mark.parametrize(
    ("space", "named"),
    [
        ({"max_length": [64, 128]}, "max_length"),
        ({"n_train": [64, 128]}, "n_train"),
        ({"soft_weight": [0.5]}, "soft_weight"),
        ({"learning_rates": [[1e-3]]}, "learning_rate"),
        ({"colour": ["red"]}, "colour"),
        ({"learning_rate": {"low": 1e-4}}, "learning_rate"),
        ({"learning_rate": {"low": 1e-3, "high": 1e-4}}, "learning_rate: low"),
        ({"learning_rate": {"low": 0, "high": 1e-4, "log": True}}, "learning_rate: low"),
        ({"learning_rate": {"low": 0.1, "high": 10}}, "learning_rates 10"),
        ({"batch": []}, "batch"),
        ({"batch": ["many"]}, "batch many"),
        ({"loss": ["hinge"]}, "loss hinge"),
    ],
)
def test_mistakes_in_a_space_are_named(made, space, named):
    with refuses(named):
        look(made, "mistaken", 1, space=space)
