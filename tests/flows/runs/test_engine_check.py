"""An engine whose workers cannot see the data stops a run before anything is made."""

from contextlib import nullcontext

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.runs.graph_run import check_engine
from tests.flows.configuration.test_engine import DATAFLOW
from tests.flows.forms import fill_parameters


@pytest.mark.parametrize(
    ("store", "paths", "seen"),
    [
        ("folder", ["gs://bucket/x"], False),
        ("gs://bucket/store", ["gs://bucket/x", "d.json"], False),
        ("gs://bucket/store", ["gs://bucket/x"], True),
    ],
)
def test_dataflow_is_told_what_it_cannot_see(store, paths, seen):
    with nullcontext() if seen else pytest.raises(UserError) as caught:
        check_engine(fill_parameters(DATAFLOW, store=store, dump={"paths": paths}))
    assert seen or caught.value.field == "engine.kind"
