"""Becomes a server: `python -m flows.servers.server_start prefect|mlflow OPTIONS…`.

The options are those of uvicorn or of `mlflow server`.
"""

import configparser
import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence

from flows.servers.health import interrupt_on_signals


def main() -> None:
    """Serve until a signal ends the process."""
    name, *options = sys.argv[1:]
    servers: dict[str, Callable[[Sequence[str]], None]] = {
        "prefect": become_prefect,
        "mlflow": become_mlflow,
    }
    servers[name](options)


def become_prefect(options: Sequence[str]) -> None:
    """Run uvicorn with our application.

    Importing Prefect makes 290,000 objects that live as long as the server does, and Python looks
    for garbage among them again and again. Not to look until all are there, and never at these
    again, spares a sixth of a start's CPU time (with and without `gc.disable()`: `python -c "import
    gc, time; gc.disable(); import flows.servers.prefect_application; print(time.process_time())"`).
    """
    gc.disable()
    import uvicorn

    from flows.servers.prefect_application import create_app

    gc.freeze()
    gc.enable()
    uvicorn.main(["--factory", f"{create_app.__module__}:{create_app.__name__}", *options])


def become_mlflow(options: Sequence[str]) -> None:
    """Make the databases of a new MLflow server, then run it in this process's place.

    MLflow makes them too, but never starts again on one that a Ctrl-C or a kill left half made.
    """
    from model.tracking.mlflow_client import create_database, create_whole_database

    interrupt_on_signals(signal.SIGTERM)  # what is half made is removed
    create_database(os.environ["MLFLOW_BACKEND_STORE_URI"])
    if settings := os.environ.get("MLFLOW_AUTH_CONFIG_PATH"):
        access = configparser.ConfigParser()
        access.read(settings)
        create_whole_database(access["mlflow"]["database_uri"], create_access_tables)
    os.execv(sys.executable, [sys.executable, "-m", "mlflow", "server", *options])


def create_access_tables(uri: str) -> None:
    """Make the tables of users and permissions, without any user."""
    from mlflow.server.auth.sqlalchemy_store import SqlAlchemyStore

    SqlAlchemyStore().init_db(uri)


if __name__ == "__main__":
    main()
