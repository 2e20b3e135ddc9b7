"""Where the data of a run are made: a section of the form."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.settings import Settings

HOST_AND_PORT = r"^\w[\w.-]*:\d{1,5}$"
WORKER_IDLE_MILLISECONDS = 10_000
"""A Python worker waits so long for the job's next stage: to start one takes CPU seconds. Flink
waits longer before it starts tasks again (deploy/flink/config.yaml): it would get a dead one.
"""
REQUIRED = {
    "flink": ("job_endpoint", "flink_master"),
    "dataflow": ("project", "region", "temp_location"),
}


class Engine(Settings, use_attribute_docstrings=True):
    """Where the data are made. They have the same bytes and fingerprints anywhere."""

    prepare: bool = False
    """Have the deployment `prepare` make dump, corpus, vocabulary and shards, on a host of the pool
    cpu; both hosts have the same store"""
    kind: Literal["local", "flink", "dataflow"] = "local"
    """Where the Beam jobs run. local: in processes of one machine; flink: on a cluster behind
    Beam's job server; dataflow: on Google's service"""
    job_endpoint: str | None = Field(default=None, pattern=HOST_AND_PORT)
    """For flink: HOST:PORT of Beam's job server, which hands jobs to the cluster"""
    worker_address: str = Field(default="localhost:50000", pattern=HOST_AND_PORT)
    """For flink: HOST:PORT of the pool of Python workers, as a TaskManager sees it; the default is
    a sidecar of each TaskManager"""
    flink_master: str | None = Field(default=None, pattern=HOST_AND_PORT)
    """For flink: HOST:PORT of the JobManager's REST API, which reports the state of a job and
    cancels it together with its run"""
    project: str | None = Field(default=None, pattern=r"^\w[\w.:-]*$")
    """For dataflow: the Google Cloud project"""
    region: str | None = Field(default=None, pattern=r"^\w[\w-]*$")
    """For dataflow: the region, for example europe-west4"""
    temp_location: str | None = Field(default=None, pattern=r"^gs://[\w.-]+(/.*)?$")
    """For dataflow: a gs:// folder for temporary files"""
    workers: int | None = Field(default=None, ge=1, le=4096)
    """For flink: slots; for dataflow: workers at most; none: as the engine decides. For local, set
    corpus.workers"""

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        for kind, names in REQUIRED.items():
            for name, value in ((name, getattr(self, name)) for name in names):
                why = f"{'it is' if value else 'missing; needed'} for `--engine.kind {kind}`"
                require((kind == self.kind) == bool(value), why, name, value)
        is_local = self.kind == "local" and self.workers
        require(not is_local, "not for `--engine.kind local`: give `corpus.workers`", "workers")
        return self

    @property
    def is_far(self) -> bool:
        """Return whether the Beam jobs run elsewhere than in processes of one machine."""
        return self.kind != "local"

    def list_options(self, local_workers: int | None = None) -> list[str]:
        """Return the options by which a Beam job runs on this engine."""
        given: dict[str, Any] = {"direct_num_workers": local_workers}
        if self.kind == "dataflow":
            given = {
                "runner": "DataflowRunner",
                "project": self.project,
                "region": self.region,
                "temp_location": self.temp_location,
                "max_num_workers": self.workers,
            }
        elif self.kind == "flink":
            given = {
                "runner": "PortableRunner",
                "job_endpoint": self.job_endpoint,
                "environment_type": "EXTERNAL",
                "environment_config": self.worker_address,
                "environment_cache_millis": WORKER_IDLE_MILLISECONDS,
                "flink_master": self.flink_master,
                "parallelism": self.workers,
            }
        return [word for name, v in given.items() if v for word in (f"--{name}", str(v))]
