"""The job as Dataflow would get it, run by a worker that has nothing but Beam and the staged
package.

Takes minutes, so it runs only when asked for by name: `pytest tests/dataflow_replay`. Needs the
package index, to install Beam into an environment of its own.
"""

import json
import subprocess
import sys
import venv
from pathlib import Path
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms import environments

from beam_jobs import corpus_job, shards_job
from tests.beam_jobs.test_corpus_job import review, write_dump
from tests.beam_jobs.test_shards_job import corpus, digests, job, reviews, small_units, vocabulary  # noqa: F401

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
def staged(corpus, vocabulary, tmp_path_factory) -> tuple[Path, Path]:  # noqa: F811
    """Where the staged files are, and where the job will write."""
    folder, output = (
        tmp_path_factory.mktemp("dataflow") / "staged",
        tmp_path_factory.mktemp("output"),
    )
    folders = [
        "--corpus",
        str(corpus),
        "--vocabulary",
        str(vocabulary),
        "--output",
        str(output),
        "--max_length",
        "64",
    ]
    with patch("beam_jobs.packing.corpus_units.MIN_UNIT_ROWS", 150):
        stage(shards_job.run, folders, folder)
    return folder, output


@pytest.fixture(scope="module")
def worker_python(staged, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("worker") / "venv"
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    beam = next(
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line.startswith("apache-beam")
    )
    for package in (beam, str(staged[0] / "workflow.tar.gz")):
        subprocess.run(
            [python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", package],
            check=True,
        )
    return python


def test_the_worker_has_no_torch_and_no_checkout(worker_python, tmp_path):
    found = (
        "import beam_jobs, importlib.util as u; "
        "print(beam_jobs.__file__, u.find_spec('torch'), u.find_spec('model'))"
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


def test_shards_job(staged, worker_python, corpus, vocabulary, tmp_path):  # noqa: F811
    folder, output = staged
    job(corpus, vocabulary, tmp_path / "local")
    replay(folder, worker_python)
    assert digests(output) == digests(tmp_path / "local") != {}
    assert not (output / "shards.json").exists()
    with patch("beam_jobs.packing.corpus_units.MIN_UNIT_ROWS", 150):
        result = job(corpus, vocabulary, output)
    assert counts_of(result) == counts_of(
        json.loads((tmp_path / "local" / "shards.json").read_text())
    )


def test_corpus_job(worker_python, tmp_path):
    dump = write_dump(tmp_path / "dump.json.gz", [review(i % 250) for i in range(300)])
    arguments = ["--input", str(dump), "--output"]
    corpus_job.run([*arguments, str(tmp_path / "local"), "--direct_running_mode=in_memory"])
    stage(corpus_job.run, [*arguments, str(tmp_path / "output")], tmp_path / "staged")
    replay(tmp_path / "staged", worker_python)
    written = [
        pq.read_table(p).to_pylist() for p in sorted((tmp_path / "output").glob("corpus-*.parquet"))
    ]
    assert written == [
        pq.read_table(p).to_pylist() for p in sorted((tmp_path / "local").glob("corpus-*.parquet"))
    ]
    assert sum(map(len, written)) == 250
    assert not (tmp_path / "output" / "corpus.json").exists()
    result = corpus_job.run(
        [*arguments, str(tmp_path / "output"), "--direct_running_mode=in_memory"]
    )
    assert counts_of(result) == counts_of(
        json.loads((tmp_path / "local" / "corpus.json").read_text())
    )


def counts_of(result: dict) -> dict:
    """What the same command started again finds done, adds up and writes, as README.md in
    deploy/dataflow says.
    """
    return {name: value for name, value in result.items() if name not in {"seconds", "cpu_seconds"}}
