"""Checks, before anything is made, that the engine of a run is there and can do what is asked."""

from beam_jobs.core.errors import UserError
from beam_jobs.core.hosts import check_host
from beam_jobs.core.storage import is_remote
from flows.configuration.form import Engine, Parameters


def check_engine(parameters: Parameters) -> None:
    """Raise UserError or TransientError, in one line, where the engine could not run the jobs."""
    engine = parameters.engine
    if engine.kind == "flink":
        _check_flink(engine)
    elif engine.kind == "dataflow":
        _check_dataflow(parameters)


def _check_flink(engine: Engine) -> None:
    """Ask the job server whether it is one, and the JobManager for its slots and versions."""
    from beam_jobs.engine import flink  # Beam: seconds, for other runs nothing

    for name in ("job_endpoint", "flink_master"):
        check_host(f"http://{getattr(engine, name)}", f"engine.{name}")
    flink.check_job_server(engine.job_endpoint, "engine.job_endpoint")
    flink.check_cluster(engine.flink_master, "engine.flink_master", max(1, engine.workers))


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
