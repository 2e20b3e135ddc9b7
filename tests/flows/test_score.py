"""What the scores of `score` are made of, and when the store has them already."""

import pandas as pd
import pytest

from amazon_electra.flows.configuration.form import Scoring
from amazon_electra.flows.stages.dump import build_dump_stage
from amazon_electra.flows.stages.scores import RegisteredModel, build_scores_stage
from amazon_electra.flows.store.store import Store
from tests.beam_jobs.scoring.models import write_network
from tests.flows.calls import cross
from tests.flows.fakes import FakeStage

MODEL = RegisteredModel("3", "f" * 16, "polarity")


@pytest.fixture
def store(tmp_path):
    """One that has the model."""
    store = Store(tmp_path / "store")
    model = FakeStage("model", 0, {}, known=MODEL.fingerprint)
    write_network(store.folder(model))
    store.publish(model, {})
    return store


def test_a_dump_is_scored_again_for_another_question_only(store, tmp_path):
    def build(**given):
        form = Scoring(store=store.address, **given)
        return build_scores_stage([MODEL], form, build_dump_stage(form.dump, store))

    (tmp_path / "new-1.csv").write_text("order_id,text\n7,good\n8,bad\n")
    dump = {"paths": [str(tmp_path / "new*.csv")]}
    scores = build(dump=dump)
    made = cross(scores).run(store, store.folder(scores))
    rows = pd.read_csv(store.folder(scores) / made["files"][0]["scores"])
    assert list(rows["order_id"]) == [7, 8]
    assert rows["polarity.predicted"].notna().all()
    assert build(dump=dump, output="elsewhere").path == scores.path
    others = [
        build(dump=dump, scores={"explain": True}),
        build(dump={**dump, "encoding": "cp1252"}),
    ]
    (tmp_path / "new-2.csv").write_text("order_id,text\n9,fine\n")
    assert len({scores.path, *(one.path for one in others), build(dump=dump).path}) == 4
