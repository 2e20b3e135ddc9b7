"""Where stages are made, which engine runs the Beam jobs, and what each needs to be told."""

from typing import Literal, Self

from pydantic import Field, model_validator

from beam_jobs.core.settings import Settings

HOST_AND_PORT = r"^([\w.-]+:\d{1,5})?$"
WORKER_IDLE_MILLISECONDS = 10_000
"""A Python worker waits so long for the job's next stage: to start one takes CPU seconds. Flink
waits longer before it starts tasks again (deploy/flink/config.yaml): it would get a dead one.
"""
OWN = {
    "flink": ("job_endpoint", "flink_master"),
    "dataflow": ("project", "region", "temp_location"),
}
REQUIRED = {
    "flink": ("job_endpoint", "flink_master"),
    "dataflow": ("project", "region", "temp_location"),
}


class Engine(Settings):
    """Where stages are made. They have the same bytes and fingerprints anywhere."""

    placement: Literal["one process tree", "pools"] = Field(
        default="one process tree",
        description="one process tree: the run makes every stage itself; pools: a worker of the "
        "pool cpu makes the data, one of training_pool trains, and the run waits for them",
    )
    training_pool: Literal["accelerator", "tpu"] = Field(
        default="accelerator",
        description="Of pools: the work pool whose workers train, fine-tune and evaluate",
    )

    kind: Literal["local", "flink", "dataflow"] = Field(
        default="local",
        description="Of the Beam jobs. local: processes of one machine; flink: a cluster behind "
        "Beam's job server; dataflow: Google's service",
    )
    job_endpoint: str = Field(
        default="",
        pattern=HOST_AND_PORT,
        description="Of flink: HOST:PORT of Beam's job server, which hands jobs to the cluster",
    )
    worker_address: str = Field(
        default="localhost:50000",
        pattern=HOST_AND_PORT,
        description="Of flink: HOST:PORT of the pool of Python workers, as the engine sees it; the "
        "default is a sidecar of each TaskManager",
    )
    flink_master: str = Field(
        default="",
        pattern=HOST_AND_PORT,
        description="Of flink: HOST:PORT of the JobManager's REST address, which tells how the job "
        "is and cancels it with its run",
    )
    project: str = Field(
        default="",
        description="Of dataflow: the Google Cloud project",
    )
    region: str = Field(
        default="",
        description="Of dataflow: for example europe-west4",
    )
    temp_location: str = Field(
        default="",
        pattern=r"^(gs://[\w.-]+(/.*)?)?$",
        description="Of dataflow: folder in gs:// for what it keeps meanwhile",
    )
    workers: int = Field(
        default=0,
        ge=0,
        le=4096,
        description="Slots of Flink, or workers of Dataflow at most; 0: as the engine says. Of "
        "local it is corpus.workers",
    )

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        for name in REQUIRED.get(self.kind, ()):
            if not getattr(self, name):
                raise ValueError(f"engine.kind={self.kind} needs engine.{name}")
        for kind, names in OWN.items():
            for name in names:
                if kind != self.kind and getattr(self, name):
                    raise ValueError(f"engine.{name} is for engine.kind={kind}, not {self.kind}")
        if self.workers and self.kind == "local":
            raise ValueError("engine.workers is not for engine.kind=local: give corpus.workers")
        return self

    @property
    def is_far(self) -> bool:
        """Return whether the Beam jobs run elsewhere than in processes of one machine."""
        return self.kind != "local"

    def list_options(self, local_workers: int = 0) -> list[str]:
        """Return the options by which a Beam job runs on this engine."""
        if not self.is_far:
            return ["--direct_num_workers", str(local_workers)] if local_workers else []
        if self.kind == "flink":
            return [
                *["--runner", "PortableRunner", "--job_endpoint", self.job_endpoint],
                *["--environment_type", "EXTERNAL", "--environment_config", self.worker_address],
                *["--environment_cache_millis", str(WORKER_IDLE_MILLISECONDS)],
                *["--flink_master", self.flink_master],
                *(["--parallelism", str(self.workers)] if self.workers else []),
            ]
        return [
            *["--runner", "DataflowRunner", "--project", self.project, "--region", self.region],
            *["--temp_location", self.temp_location],
            *(["--max_num_workers", str(self.workers)] if self.workers else []),
        ]
