"""Checks, before anything is made, that the engine of a run is there and can do what is asked."""

from beam_jobs.job.errors import UserError
from beam_jobs.job.hosts import check_host
from beam_jobs.job.storage import is_remote
from flows.configuration.engine import Engine
from flows.configuration.parameters import Parameters


def check_engine(parameters: Parameters) -> None:
    """Raise UserError or TransientError, in one line, where the engine could not run the jobs."""
    engine = parameters.engine
    if engine.kind == "flink":
        _check_flink(engine)
    elif engine.kind == "dataflow":
        _check_dataflow(parameters)


def _check_flink(engine: Engine) -> None:
    """Ask the job server whether it is one, and the JobManager for its slots and versions."""
    from beam_jobs.engine import (  # Beam: seconds, for other runs nothing
        flink_jobs,
        flink_versions,
        job_server,
    )

    for name in ("job_endpoint", "flink_master"):
        if address := getattr(engine, name):
            check_host(f"http://{address}", f"engine.{name}")
    job_server.ask_job_server(engine.job_endpoint, "engine.job_endpoint")
    if not engine.flink_master:
        return
    overview = flink_jobs.read_flink_overview(engine.flink_master, "engine.flink_master")
    slots = int(overview["slots-total"])
    if slots == 0:
        raise UserError(
            f"engine.flink_master {engine.flink_master}: the cluster has no slot; start a "
            "TaskManager"
        )
    if engine.workers > slots:
        raise UserError(
            f"engine.workers={engine.workers}: the cluster at {engine.flink_master} has {slots} "
            "slots"
        )
    flink_versions.check_flink_versions(engine.flink_master, "engine.flink_master")


def _check_dataflow(parameters: Parameters) -> None:
    """Refuse what Dataflow's workers cannot read or write: anything on this machine."""
    if not is_remote(parameters.store):
        raise UserError(
            f"engine.kind=dataflow: its workers do not see the folder {parameters.store}; give a "
            "store in gs://"
        )
    for path in [*parameters.dump.paths, *parameters.corpus.withhold]:
        if not is_remote(path):
            raise UserError(
                f"engine.kind=dataflow: its workers do not see {path}; put it into gs:// and give "
                "its address"
            )
