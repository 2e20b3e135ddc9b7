"""`--start-from last`: the encoder of the newest run of another dump."""

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.store.store import Store
from tests.flows.forms import fill_parameters
from tests.flows.made import plan_stages, publish, write_encoder


def plan(store, dump, **pretraining):
    """The stages of a run by their names."""
    given = {"dump": {"paths": [dump]}, "store": str(store.root), "pretraining": pretraining}
    form = fill_parameters(["effort=full", "finetuning.tasks=polarity"], **given)
    return {stage.name: stage for stage in plan_stages(form, store)}


def make(store, stages, folder):
    """Publish all stages of a run; return the folder of its encoder."""
    encoder = stages["report"].inputs["encoder"]
    written = write_encoder(store.folder(encoder) / folder)
    for stage in stages.values():
        publish(store, stage)
    return str(written)


def test_last_is_the_newest_encoder_of_another_dump(tmp_path):
    store = Store(tmp_path / "store")
    with pytest.raises(UserError) as refused:
        plan(store, "sample:50", start_from="last")
    assert refused.value.field == "pretraining.start_from"
    first = make(store, plan(store, "sample:50"), "discriminator")
    continued = plan(store, "sample:70", start_from="last", steps=5)
    assert continued["origin"].result["place"] == first
    assert continued["pretraining"].inputs["origin"] is continued["origin"]
    second = make(store, continued, "encoder")
    again = plan(store, "sample:70", start_from="last", steps=5)
    assert again["origin"].fingerprint == continued["origin"].fingerprint
    assert plan(store, "sample:90", start_from="last", steps=5)["origin"].result["place"] == second
