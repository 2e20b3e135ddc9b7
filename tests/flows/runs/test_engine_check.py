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


def test_flink_is_asked_once_its_hosts_are_allowed(monkeypatch):
    monkeypatch.setattr(flink, "CONNECT_SECONDS", 1.0)
    with serve_grpc() as server, serve_flink(2) as cluster:
        given = (
            "engine.kind=flink",
            f"engine.job_endpoint={server}",
            f"engine.flink_master={cluster.address}",
        )
        with pytest.raises(UserError, match="AMAZON_ELECTRA_PRIVATE_HOSTS=localhost"):
            check(*given)
        monkeypatch.setenv("AMAZON_ELECTRA_PRIVATE_HOSTS", "localhost")
        check(*given)
        check(*given, "engine.workers=2")
        swapped = {"engine.flink_master": server, "engine.job_endpoint": cluster.address}
        for field, address in swapped.items():
            with pytest.raises(UserError, match=field):
                check(*given, f"{field}={address}")
    with pytest.raises(TransientError) as raised:
        check(*given)
    assert str(raised.value).startswith(f"`engine.job_endpoint='{server}'`")


@pytest.mark.parametrize(
    ("slots", "field"),
    [(0, "engine.flink_master"), (2, "engine.workers")],
)
def test_a_cluster_with_too_few_slots_is_told_before_anything_is_made(monkeypatch, slots, field):
    monkeypatch.setenv("AMAZON_ELECTRA_PRIVATE_HOSTS", "localhost")
    with serve_grpc() as server, serve_flink(slots) as cluster:
        given = ("engine.kind=flink", f"engine.job_endpoint={server}", "engine.workers=3")
        with pytest.raises(UserError) as raised:
            check(*given, f"engine.flink_master={cluster.address}")
    assert raised.value.field == field
    assert raised.value.value == {0: cluster.address, 2: 3}[slots]
    assert "\n" not in str(raised.value)


def test_dataflow_is_told_what_it_cannot_see(tmp_path):
    with pytest.raises(UserError, match="gs://"):
        check(*DATAFLOW, store=str(tmp_path))
    with pytest.raises(UserError, match=r"d\.json.*gs://"):
        check(*DATAFLOW, store="gs://bucket/store", dump={"paths": ["gs://bucket/x", "d.json"]})
    check(*DATAFLOW, store="gs://bucket/store", dump={"paths": ["gs://bucket/x"]})
