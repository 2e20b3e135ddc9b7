"""The job as Dataflow would get it, run by a worker that has nothing but Beam and the staged
package, from and to a Google Cloud Storage of this machine.

Takes minutes, so it runs only when asked for by name: `pytest tests/dataflow_replay`. Needs the
package index, to install Beam into an environment of its own.
"""

import json
import os
import subprocess
import sys
import venv
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms import environments

from amazon_electra.beam_jobs import corpus_job, shards_job
from amazon_electra.beam_jobs.core.command_line import call_job
from tests.beam_jobs.dumps import review, write_lines
from tests.beam_jobs.test_shards_job import corpus, digests, job, reviews, small_units  # noqa: F401
from tests.gcs_server import serve_gcs

apiclient = pytest.importorskip(
    "apache_beam.runners.dataflow.internal.apiclient", reason="needs apache-beam[gcp]"
)
pytestmark = [
    pytest.mark.skipif(
        "dataflow_replay" not in " ".join(sys.argv),
        reason="takes minutes: name tests/dataflow_replay",
    ),
    pytest.mark.timeout(1800),
]
ROOT = Path(__file__).parents[2]
IN_MEMORY = "--direct_running_mode=in_memory"
DATAFLOW = [
    *[
        "--runner=DataflowRunner",
        "--project=project-1",
        "--region=us-central1",
        "--no_auth",
        "--job_name=replayed",
    ],
    *["--temp_location=gs://bucket/temp", "--staging_location=gs://bucket/staging"],
]


def stage(run, arguments: list[str], folder: Path) -> None:
    """Run a job up to where Dataflow takes over; all it would upload lands in the folder."""
    folder.mkdir()

    def keep(client, location, name, stream, *args, **kwargs) -> None:
        (folder / name).write_bytes(stream.read())

    with (
        patch.object(apiclient.DataflowApplicationClient, "stage_file", keep),
        patch.object(apiclient, "create_storage_client", lambda *args: None),
        patch.object(apiclient, "get_service_credentials", lambda options: None),
        patch(
            "apache_beam.options.pipeline_options.GoogleCloudOptions._warn_if_soft_delete_policy_enabled",
            lambda *args: None,
        ),
    ):
        staged = run([*arguments, *DATAFLOW, f"--template_location={folder / 'job.json'}"])
    assert staged["staged"] == "DataflowRunner"


@pytest.fixture(scope="module")
def cloud():
    """Buckets that this process and the worker's reach as gs://."""
    with serve_gcs() as gcs, patch.dict("os.environ", gcs.environment):
        yield gcs


def put_folder(cloud, folder: Path, name: str) -> str:
    """Put the files of a folder into a bucket; return its address."""
    for path in folder.rglob("*"):
        if path.is_file():
            cloud.objects[f"bucket/{name}/{path.relative_to(folder)}"] = path.read_bytes()
    return f"gs://bucket/{name}"


@pytest.fixture(scope="module")
def staged(cloud, corpus, vocabulary, tmp_path_factory) -> Path:  # noqa: F811
    """Where the staged files are of a job from gs://bucket to gs://bucket/shards."""
    folder = tmp_path_factory.mktemp("dataflow") / "staged"
    words = ["--corpus", put_folder(cloud, corpus, "corpus-in")]
    words += ["--vocabulary", put_folder(cloud, vocabulary, "vocabulary")]
    with patch("amazon_electra.beam_jobs.packing.shards.MIN_UNIT_ROWS", 150):
        stage(
            partial(call_job, shards_job.make_shards),
            [*words, "--output", "gs://bucket/shards", "--max_length", "64"],
            folder,
        )
    return folder


@pytest.fixture(scope="module")
def worker_python(staged, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("worker") / "venv"
    venv.create(folder)
    python = folder / "bin" / "python"
    install = ["uv", "pip", "install", "--quiet", "--python", python]
    install += ["-c", ROOT / "requirements.lock", "apache-beam", staged / "workflow.tar.gz"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(install, env=os.environ | {"PATH": path}, check=True)
    return python


def test_the_worker_has_no_torch_and_no_checkout(worker_python, tmp_path):
    found = (
        "import importlib.util as u; from amazon_electra import beam_jobs; "
        "print(beam_jobs.__file__, u.find_spec('torch'), u.find_spec('amazon_electra.model'))"
    )
    done = subprocess.run(
        [worker_python, "-c", found], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    where, torch, model = done.stdout.split()
    assert (torch, model) == ("None", "None")
    assert not where.startswith(str(ROOT))


def replay(folder: Path, worker_python: Path) -> None:
    """Runs what was staged, every step of it in a process of the worker's own interpreter."""
    pipeline = beam_runner_api_pb2.Pipeline.FromString((folder / "pipeline.pb").read_bytes())
    command = f"{worker_python} -m apache_beam.runners.worker.sdk_worker_main"
    replacement = environments.SubprocessSDKEnvironment.from_command_string(command).to_runner_api(
        None
    )
    for environment in pipeline.components.environments.values():
        capabilities = list(environment.capabilities)
        environment.CopyFrom(replacement)
        environment.capabilities[:] = capabilities
    FnApiRunner().run_via_runner_api(pipeline, PipelineOptions([])).wait_until_finish()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A worker finds nothing of the checkout in its working folder or on its path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)


@pytest.mark.smoke
def test_shards_job(cloud, staged, worker_python, corpus, vocabulary, tmp_path):  # noqa: F811
    job(corpus, vocabulary, tmp_path / "local")
    replay(staged, worker_python)
    for name in cloud.list_names("bucket/shards"):
        path = tmp_path / "cloud" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(cloud.objects[f"bucket/shards/{name}"])
    assert digests(tmp_path / "cloud") == digests(tmp_path / "local") != {}
    totals = [json.loads((tmp_path / s / "shards.json").read_text()) for s in ("cloud", "local")]
    assert counts_of(totals[0]) == counts_of(totals[1])


def test_corpus_job(cloud, worker_python, tmp_path):
    """Nobody waits for the job of a template: the totals are there when the engine is done."""
    dump = write_lines(tmp_path / "dump.json.gz", [review(i % 250) for i in range(300)])
    local = [*["--input", str(dump), "--output", str(tmp_path / "local")], IN_MEMORY]
    call_job(corpus_job.make_corpus, local)
    cloud.objects["bucket/dumps/dump.json.gz"] = dump.read_bytes()
    output = ["--input", "gs://bucket/dumps/*.json.gz", "--output", "gs://bucket/corpus"]
    stage(partial(call_job, corpus_job.make_corpus), output, tmp_path / "staged")
    replay(tmp_path / "staged", worker_python)
    # a late worker may still write to the work folder, so that it stays
    names = [name for name in cloud.list_names("bucket/corpus") if "_work" not in name]
    written = [
        pq.read_table(pa.BufferReader(cloud.objects[f"bucket/corpus/{name}"])).to_pylist()
        for name in names
        if name.endswith(".parquet")
    ]
    assert written == [
        pq.read_table(p).to_pylist() for p in sorted((tmp_path / "local").glob("corpus-*.parquet"))
    ]
    assert sum(map(len, written)) == 250
    totals = counts_of(json.loads(cloud.objects["bucket/corpus/corpus.json"]))
    expected = counts_of(json.loads((tmp_path / "local" / "corpus.json").read_text()))
    assert [*totals.pop("files").values()] == [*expected.pop("files").values()]
    assert totals == expected


def counts_of(result: dict) -> dict:
    """What does not depend on where a job ran."""
    here = {"seconds", "cpu_seconds"}
    return {name: value for name, value in result.items() if name not in here}
