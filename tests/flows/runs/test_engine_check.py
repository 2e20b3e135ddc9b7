"""An engine that is away, or cannot see the data, stops a run before anything is made."""

import re

import apache_beam as beam
import pytest

from beam_jobs.job.errors import TransientError, UserError
from flows.configuration.settings import fill_parameters
from flows.runs.engine_check import check_engine
from tests.beam_jobs.engine.job_servers import start_job_server
from tests.beam_jobs.engine.rest import serve_flink
from tests.flows.configuration.test_engine import DATAFLOW


def check(*settings, **given):
    check_engine(fill_parameters(settings, **given))


def test_a_local_run_asks_nobody():
    check()


def test_a_job_server_is_asked_once_its_host_is_allowed(monkeypatch, tmp_path):
    with start_job_server(tmp_path) as (_, port):
        flink = ("engine.kind=flink", f"engine.job_endpoint=localhost:{port}")
        with pytest.raises(UserError, match=r"AMAZON_ELECTRA_PRIVATE_HOSTS=localhost allows it"):
            check(*flink)
        monkeypatch.setenv("AMAZON_ELECTRA_PRIVATE_HOSTS", "localhost")
        check(*flink)
        with pytest.raises(UserError, match="is no JobManager of Flink: give its REST address"):
            check(*flink, f"engine.flink_master=localhost:{port}")
    with pytest.raises(TransientError, match=r"engine\.job_endpoint localhost:\d+ cannot be reach"):
        check(*flink)


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        (0, r"engine\.flink_master localhost:\d+: the cluster has no slot; start a TaskManager"),
        (2, r"engine\.workers=3: the cluster at localhost:\d+ has 2 slots"),
    ],
)
def test_a_cluster_with_too_few_slots_is_told_before_anything_is_made(
    monkeypatch, tmp_path, slots, words
):
    monkeypatch.setenv("AMAZON_ELECTRA_PRIVATE_HOSTS", "localhost")
    with start_job_server(tmp_path) as (_, port), serve_flink(slots) as flink:
        given = ("engine.kind=flink", f"engine.job_endpoint=localhost:{port}")
        given += (f"engine.flink_master={flink.address}",)
        with pytest.raises(UserError, match=words) as told:
            check(*given, "engine.workers=3")
        assert "\n" not in str(told.value)
        if slots:
            check(*given, "engine.workers=2")


@pytest.mark.parametrize(
    ("jar", "words"),
    [
        (
            "beam-runners-flink-1.18-2.62.0.jar",
            r"beam-runners-flink-1\.18-2\.62\.0\.jar is for Flink 1\.18, and the cluster is Flink "
            r"1\.19\.3; put Beam's jars for Flink 1\.19 into its lib folder",
        ),
        (
            "beam-runners-flink-1.19-job-server-2.50.0.jar",
            rf"is of Beam 2\.50\.0, and the jobs have Beam {re.escape(beam.__version__)}; take the",
        ),
        ("beam-runners-flink-1.19-2.62.0-SNAPSHOT.jar", r"is of Beam 2\.62\.0-SNAPSHOT, and "),
        ("beam-runners-flink-1.19-2.62.0.jar", ""),
        (f"beam-runners-flink-1.19-job-server-{beam.__version__}.jar", ""),
        ("beam-runners-core-java-2.50.0.jar", ""),
    ],
)
def test_jars_of_other_versions_are_told_before_anything_is_made(monkeypatch, tmp_path, jar, words):
    monkeypatch.setenv("AMAZON_ELECTRA_PRIVATE_HOSTS", "localhost")
    jars = ["flink-dist-1.19.3.jar", jar]
    with start_job_server(tmp_path) as (_, port), serve_flink(2, jars=jars) as flink:
        given = ("engine.kind=flink", f"engine.job_endpoint=localhost:{port}")
        given += (f"engine.flink_master={flink.address}",)
        if not words:
            check(*given)
            return
        with pytest.raises(UserError, match=rf"^engine\.flink_master .*{words}") as told:
            check(*given)
    assert "\n" not in str(told.value)


def test_dataflow_is_told_what_it_cannot_see(tmp_path):
    with pytest.raises(UserError, match=r"do not see the folder .*; give a store in gs://"):
        check(*DATAFLOW, store=str(tmp_path))
    with pytest.raises(UserError, match=r"do not see d\.json; put it into gs://"):
        check(*DATAFLOW, store="gs://bucket/store", dump={"paths": ["gs://bucket/x", "d.json"]})
    check(*DATAFLOW, store="gs://bucket/store", dump={"paths": ["gs://bucket/x"]})
