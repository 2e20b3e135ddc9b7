"""Makes the databases of a new MLflow server, then becomes that server.

MLflow makes them too, but never starts again on one that a Ctrl-C or a kill left half made.
"""

import configparser
import os
import signal
import sys

from flows.servers.health import interrupt_on_signals
from model.tracking.mlflow_client import create_database, create_whole_database


def main() -> None:
    """Take the options and the environment of `mlflow server`."""
    interrupt_on_signals(signal.SIGTERM)  # what is half made is removed
    create_database(os.environ["MLFLOW_BACKEND_STORE_URI"])
    if settings := os.environ.get("MLFLOW_AUTH_CONFIG_PATH"):
        access = configparser.ConfigParser()
        access.read(settings)
        create_whole_database(access["mlflow"]["database_uri"], create_access_tables)
    os.execv(sys.executable, [sys.executable, "-m", "mlflow", "server", *sys.argv[1:]])


def create_access_tables(uri: str) -> None:
    """Make the tables of users and permissions, without any user."""
    from mlflow.server.auth.sqlalchemy_store import SqlAlchemyStore

    SqlAlchemyStore().init_db(uri)


if __name__ == "__main__":
    main()
