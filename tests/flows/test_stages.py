"""What decides the stages of the graph: a change redoes what depends on it and no more."""

from dataclasses import replace

import pytest

from flows.completion import Plan
from flows.domain_adaptation import graph
from flows.parameters import from_settings
from flows.store import Store
from model import presets


@pytest.fixture
def fingerprints(tmp_path):
    store = Store(tmp_path / "store")

    def of(*settings):
        plan = Plan(store)
        graph(from_settings(settings, dump={"paths": ["sample:50"]}), plan)
        return {stage.label: stage.fingerprint for stage, _ in plan.stages}

    return of


def changed(before, after):
    return {name.split(" · ")[0] for name in before if before[name] != after[name]}


def test_a_setting_redoes_what_depends_on_it_and_no_more(fingerprints):
    before = fingerprints()
    assert len(before) == 5 + 24 + 1
    assert changed(before, fingerprints("pretraining.steps=9")) == {"pre-training", "pre-trained", "report"}
    assert changed(before, fingerprints("corpus.seed=1")) == {n.split(" · ")[0] for n in before} - {"dump"}
    assert changed(before, fingerprints("pretraining.device=cpu", "finetuning.at_once=1", "corpus.workers=3")) == set()


def test_a_preset_counts_by_what_it_says(fingerprints, monkeypatch):
    before, tiny = fingerprints(), presets.PRESETS["tiny"]
    monkeypatch.setitem(presets.PRESETS, "tiny", replace(tiny, finetuning=replace(tiny.finetuning, train_examples=77)))
    assert changed(before, fingerprints()) == {"pre-trained", "random", "report"}
    monkeypatch.setitem(presets.PRESETS, "tiny", replace(tiny, pretraining=replace(tiny.pretraining, steps=77)))
    assert changed(before, fingerprints()) == {"pre-training", "pre-trained", "report"}
