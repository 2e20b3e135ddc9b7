"""The engine in the form: what the jobs are told of it."""

import pytest

from amazon_electra.flows.store.store import Store
from tests.flows.calls import call_of
from tests.flows.forms import fill_parameters
from tests.flows.made import plan_stages

FLINK = ("engine.kind=flink", "engine.job_endpoint=jobs:8099", "engine.flink_master=manager:8081")
DATAFLOW = (
    "engine.kind=dataflow",
    "engine.project=p-1",
    "engine.region=europe-west4",
    "engine.temp_location=gs://bucket/temp",
)


def list_stages(folder, *settings):
    store = Store(folder)
    form = fill_parameters(settings, dump={"paths": ["sample:50"]})
    return {stage.label: stage for stage in plan_stages(form, store)}, store


def list_words(folder, label, *settings):
    stages, store = list_stages(folder, *settings)
    return call_of(stages[label], store)["beam_options"]


@pytest.mark.parametrize("label", ["corpus", "shards"])
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("engine.workers=3",), "--direct_num_workers 3"),
        (
            (*FLINK, "engine.workers=8"),
            "--runner PortableRunner --job_endpoint jobs:8099 --environment_type EXTERNAL "
            "--environment_config localhost:50000 --environment_cache_millis 10000 "
            "--flink_master manager:8081 --parallelism 8",
        ),
        (
            (*DATAFLOW, "engine.workers=84"),
            "--runner DataflowRunner --project p-1 --region europe-west4 "
            "--temp_location gs://bucket/temp --max_num_workers 84",
        ),
    ],
)
def test_both_jobs_are_told_of_the_engine(tmp_path, label, settings, words):
    told = list_words(tmp_path, label, *settings)
    assert " ".join(told) == words
