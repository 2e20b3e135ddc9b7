"""An engine that is away, or cannot see the data, stops a run before anything is made."""

from contextlib import nullcontext

import pytest

from amazon_electra.beam_jobs.core.errors import TransientError, UserError
from amazon_electra.beam_jobs.engine import flink
from amazon_electra.flows.runs.graph_run import check_engine
from tests.beam_jobs.engine.job_servers import serve_grpc
from tests.beam_jobs.engine.rest import serve_flink
from tests.flows.configuration.test_engine import DATAFLOW
from tests.flows.forms import fill_parameters


def check(*settings, **given):
    check_engine(fill_parameters(settings, **given))


def test_flink_is_asked(monkeypatch):
    monkeypatch.setattr(flink, "CONNECT_SECONDS", 1.0)
    with serve_grpc() as server, serve_flink() as cluster:
        given = (
            "engine.kind=flink",
            f"engine.job_endpoint={server}",
            f"engine.flink_master={cluster.address}",
        )
        check(*given)
        with pytest.raises(UserError) as told:
            check(*given, f"engine.job_endpoint={cluster.address}")
        assert told.value.field == "engine.job_endpoint"
    with pytest.raises(TransientError):
        check(*given)


@pytest.mark.parametrize(
    ("store", "paths", "seen"),
    [
        ("folder", ["gs://bucket/x"], False),
        ("gs://bucket/store", ["gs://bucket/x", "d.json"], False),
        ("gs://bucket/store", ["gs://bucket/x"], True),
    ],
)
def test_dataflow_is_told_what_it_cannot_see(store, paths, seen):
    with nullcontext() if seen else pytest.raises(UserError) as told:
        check(*DATAFLOW, store=store, dump={"paths": paths})
    assert seen or told.value.field == "engine.kind"
