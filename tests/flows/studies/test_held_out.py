"""What encoders have seen is told by what the store has of them, and by nothing else."""

import pytest

from amazon_electra.beam_jobs.core.storage import hash_file
from amazon_electra.flows.stages.origin import build_external_stage
from amazon_electra.flows.stages.report import describe_arm, group_by_arm, is_held_out
from amazon_electra.flows.store.store import Store
from tests.flows.fakes import FakeStage
from tests.flows.studies.loaded import build


@pytest.fixture
def place(tmp_path):
    """Two files of which the first was withheld from a corpus."""
    for name in ("sst2.tsv", "imdb.tsv"):
        (tmp_path / name).write_text(f"of {name}")
    return tmp_path


def publish(store, *stages):
    for stage in stages:
        store.publish(stage, {})
    return store.manifest(stages[-1])


def test_a_task_is_held_out_where_the_store_says_so(place):
    store, withheld = Store(place / "store"), [hash_file(place / "sst2.tsv")]
    corpus = FakeStage("corpus", 1, {"withhold": withheld})
    other = FakeStage("corpus", 1, {"other": True, "withhold": []})
    publish(store, corpus, other)
    trained = {
        name: publish(store, shards, FakeStage("pretraining", 1, {}, {"shards": shards}))
        for name, shards in {
            "reviews": FakeStage("shards", 1, {}, {"corpus": corpus}),
            "general": FakeStage(
                "shards", 1, {"general_text": ["x"], "withhold": []}, {"corpus": corpus}
            ),
            "external": FakeStage("external", 1, {"content": "x"}, result={"path": str(place)}),
        }.items()
    }

    def tell(data):
        return {name for name, made in trained.items() if is_held_out(store, made, data)}

    assert tell(corpus) == {"reviews", "general"}, "shards are of the pretrain split"
    assert tell(other) == set()
    assert tell(build_external_stage(str(place / "sst2.tsv"), store)) == {"reviews"}
    assert tell(build_external_stage(str(place / "imdb.tsv"), store)) == set()


def test_an_arm_has_seen_what_its_encoder_was_made_of(place):
    arms = [
        {"name": "bert", "encoder": "bert-base-uncased"},
        {"name": "own", "encoder": "${encoder}"},
        {"name": "made", "pretraining": {"shards": "${shards}"}},
        {"name": "random", "encoder": "random", "architecture": "arm:own"},
    ]
    tasks = [{"task": "polarity", "data": "${corpus}"}]
    store = Store(place / "store")
    corpus = FakeStage("corpus", 1, {})
    shards = FakeStage("shards", 1, {"max_length": 64}, {"corpus": corpus})
    encoder = FakeStage("pretraining", 1, {"recipe": "sample", "steps": 1}, {"shards": shards})
    sources = {"corpus": corpus, "shards": shards, "encoder": encoder}
    cells = group_by_arm(build({"seeds": [0], "arms": arms, "tasks": tasks}, store.root, sources))
    publish(store, corpus, shards, encoder, cells["made"][0].inputs["encoder"])
    told = [describe_arm(store, own) for own in cells.values()]
    assert [arm.name for arm in told if arm.data_known] == ["own", "made", "random"]
    assert {arm.name: arm.held_out for arm in told} == {
        "bert": None,
        "random": None,
        "own": ["polarity"],
        "made": ["polarity"],
    }
