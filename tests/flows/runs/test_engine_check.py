"""An engine that is away, or cannot see the data, stops a run before anything is made."""

import pytest

from amazon_electra.beam_jobs.core.errors import TransientError, UserError
from amazon_electra.beam_jobs.engine import flink
from amazon_electra.flows.configuration.form import fill_parameters
from amazon_electra.flows.runs.graph_run import check_engine
from tests.beam_jobs.engine.job_servers import serve_grpc
from tests.beam_jobs.engine.rest import serve_flink
from tests.flows.configuration.test_engine import DATAFLOW


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
        with pytest.raises(UserError, match=r"engine\.job_endpoint"):
            check(*given, f"engine.job_endpoint={cluster.address}")
    with pytest.raises(TransientError) as raised:
        check(*given)
    assert str(raised.value).startswith(f"`engine.job_endpoint='{server}'`")


def test_dataflow_is_told_what_it_cannot_see(tmp_path):
    with pytest.raises(UserError, match="gs://"):
        check(*DATAFLOW, store=str(tmp_path))
    with pytest.raises(UserError, match=r"d\.json.*gs://"):
        check(*DATAFLOW, store="gs://bucket/store", dump={"paths": ["gs://bucket/x", "d.json"]})
    check(*DATAFLOW, store="gs://bucket/store", dump={"paths": ["gs://bucket/x"]})
