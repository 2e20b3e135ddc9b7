"""Who may read a store, and the password of its servers."""

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path

from amazon_electra.beam_jobs.core.errors import UserError

USER = "admin"
PASSWORD_FILE = "password"


def restrict_store(root: Path) -> None:
    """Make a store's folder, and let nobody else read what this process and its children write."""
    os.umask(0o077)
    try:
        root.mkdir(parents=True, exist_ok=True)
        if not os.access(root, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UserError(
            f"cannot be written: {error.strerror}; choose another folder", "store", root
        ) from None


def read_password(store: Path) -> str:
    """Return `admin:PASSWORD` of the store's servers; the first call makes it, for this user alone.

    UserError where this user may not read it.
    """
    path = store / PASSWORD_FILE
    store.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        made = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(made, "w", encoding="utf-8") as file:
            file.write(f"{USER}:{secrets.token_urlsafe(24)}\n")
    try:
        return path.read_text(encoding="utf-8").strip()
    except PermissionError:
        raise UserError(f"{path}: only the user who made it may read it") from None


def build_prefect_access(store: Path) -> dict[str, str]:
    """Return the environment of Prefect's clients that know the store's password."""
    return {"PREFECT_API_AUTH_STRING": read_password(store)}


def build_mlflow_access(store: Path) -> dict[str, str]:
    """Return the environment of MLflow's clients that know the store's password."""
    user, _, password = read_password(store).partition(":")
    return {"MLFLOW_TRACKING_USERNAME": user, "MLFLOW_TRACKING_PASSWORD": password}
