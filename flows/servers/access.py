"""Who may reach what `up` serves and what a store holds, on a machine that several people use."""

import errno
import os
import pwd
from pathlib import Path

from beam_jobs.core.errors import UserError

GROUP_VARIABLE = "AMAZON_ELECTRA_STORE_GROUP"
"""Environment variable: `true` lets the store's group read and write too."""
PASSWORDS = ("PREFECT_SERVER_API_AUTH_STRING", "MLFLOW_TRACKING_USERNAME")
"""Environment variables that make the two servers ask for a password."""
PEOPLE = range(1000, 60_000)
"""Numbers of the users that are people (/etc/login.defs of the usual distributions)."""


def restrict_store(root: Path) -> None:
    """Make a store's folder, and let nobody else read what this process and its children write.

    Folders get 700 and files 600, with AMAZON_ELECTRA_STORE_GROUP=true 770 and 660.
    """
    os.umask(0o007 if is_shared_with_group() else 0o077)
    try:
        root.mkdir(parents=True, exist_ok=True)
        if not os.access(root, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UserError(
            f"--store {root}: cannot be written: {error.strerror}; choose another folder"
        ) from None


def is_shared_with_group() -> bool:
    """Return whether the setting lets the store's group in."""
    choice = os.environ.get(GROUP_VARIABLE, "").lower()
    if choice not in ("", "true", "false"):
        raise UserError(f"{GROUP_VARIABLE} is {choice!r}: write true or false")
    return choice == "true"


def check_passwords(without_password: bool) -> None:
    """Raise UserError if other people of this machine could start runs, and nobody allowed it."""
    missing = [name for name in PASSWORDS if not os.environ.get(name)]
    if without_password or not missing:
        return
    if others := list_other_people():
        raise UserError(
            f"other users of this machine ({', '.join(others[:3])}) could start runs, which read "
            f"files as you: set {' and '.join(missing)} (deploy/README.md), or give --no-password"
        )


def list_other_people() -> list[str]:
    """Return the names of the users of this machine who can log in, without this process's own."""
    return [
        user.pw_name
        for user in pwd.getpwall()
        if user.pw_uid in PEOPLE
        and user.pw_uid != os.getuid()
        and not user.pw_shell.endswith(("/nologin", "/false"))
    ]
