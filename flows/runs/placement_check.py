"""Checks, before anything is made, that the pools of a run are there."""

from collections.abc import Sequence

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import WorkerStatus
from prefect.exceptions import ObjectNotFound

from beam_jobs.job.errors import UserError
from flows.configuration.engine import Engine
from flows.runner.pools.child_run import name_deployment
from flows.runner.pools.maker import choose_pool
from flows.runner.store import Stage, Store
from flows.servers import mlflow_server

FIELD = "engine.placement=pools"


def check_placement(engine: Engine, store: Store, stages: Sequence[Stage]) -> None:
    """Raise UserError, in one line, where the pools that these stages need are not there, or where
    their hosts would have no MLflow in common.
    """
    if engine.placement != "pools":
        return
    if "://" in store.address:
        uri = mlflow_server.resolve_mlflow_uri(store.root)
        if not uri.startswith("http"):
            raise UserError(
                f"{FIELD} with a store in a bucket: set MLFLOW_TRACKING_URI to a server that all "
                "hosts reach (amazon-electra up has one)"
            )
    pools = {choose_pool(stage, engine.training_pool) for stage in stages}
    with get_client(sync_client=True) as client:
        for pool in sorted(filter(None, pools)):
            _check_pool(client, pool)


def _check_pool(client: SyncPrefectClient, pool: str) -> None:
    """Raise UserError if a pool is not there, cannot make stages, or has no worker that lives."""
    try:
        client.read_work_pool(pool)
        client.read_deployment_by_name(name_deployment(pool))
    except ObjectNotFound:
        raise UserError(
            f"{FIELD}: the Prefect server at {client.api_url} knows no pool {pool} that makes "
            "stages: tell it of ours (sh deploy/deployments.sh)"
        ) from None
    workers = client.read_workers_for_work_pool(pool)
    if not any(worker.status == WorkerStatus.ONLINE for worker in workers):
        raise UserError(
            f"{FIELD}: no worker of the pool {pool} is alive: start one "
            f"(prefect worker start --type process --pool {pool})"
        )
