"""A plan lists its stages, complete or to do."""

from amazon_electra.flows.plan import list_lines
from amazon_electra.flows.store.stage import Group, list_stages
from amazon_electra.flows.store.store import Store
from tests.flows.fakes import FakeStage

SHARDS = FakeStage("shards", 1, {"max_length": 128})
TRAINING = FakeStage("pretraining", 1, {}, {"shards": SHARDS})


def test_stages_are_complete_or_to_do(tmp_path):
    """One that is shared counts once."""
    store = Store(tmp_path)
    store.publish(SHARDS, {})

    def read_lines(*stages):
        plan = list_stages((Group.of(stage) for stage in stages), store)
        return [line.split() for line in list_lines(plan)]

    complete, todo, total = read_lines(SHARDS, TRAINING, SHARDS, TRAINING)
    assert complete == ["complete", "shards", SHARDS.fingerprint, SHARDS.label]
    assert todo == ["to", "do", "pretraining", TRAINING.fingerprint, TRAINING.label]
    assert " ".join(total) == "1 stage to do, 1 complete"
    assert "nothing to do" in " ".join(read_lines(SHARDS)[-1])
