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
    """Where the Beam jobs run: in processes of one machine, on a Flink cluster behind Beam's job
    server, or on Google's service"""
    workers: int | None = Field(default=None, ge=1, le=4096)
    """Processes of one machine, none: one for each core; for flink slots; for dataflow workers at
    most"""
    job_endpoint: str | None = Field(default=None, pattern=HOST_AND_PORT)
    """For flink: HOST:PORT of Beam's job server"""
    worker_address: str = Field(default="localhost:50000", pattern=HOST_AND_PORT)
    """For flink: HOST:PORT of the pool of Python workers, as a TaskManager sees it"""
    flink_master: str | None = Field(default=None, pattern=HOST_AND_PORT)
    """For flink: HOST:PORT of the JobManager's REST API, by which a job ends with its run"""
    project: str | None = None
    """For dataflow: the Google Cloud project"""
    region: str | None = None
    """For dataflow: the region, for example europe-west4"""
    temp_location: str | None = Field(default=None, pattern="^gs://")
    """For dataflow: a gs:// folder for temporary files"""

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        for kind, names in REQUIRED.items():
            for name, value in ((name, getattr(self, name)) for name in names):
                why = f"{'it is' if value else 'missing; needed'} for `--engine.kind {kind}`"
                require((kind == self.kind) == bool(value), why, name, value)
        return self

    def list_options(self) -> list[str]:
        """Return the options by which a Beam job runs on this engine."""
        given: dict[str, Any] = {"direct_num_workers": self.workers}
        if self.kind == "dataflow":
            given = {
                "runner": "DataflowRunner",
                **{name: getattr(self, name) for name in REQUIRED["dataflow"]},
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
