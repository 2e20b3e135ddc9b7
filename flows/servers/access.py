"""Who may reach what `up` serves and what a store holds, on a machine that several people use."""

import errno
import json
import os
import secrets
import stat
import sys
from pathlib import Path

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import atomic_path
from amazon_electra.beam_jobs.core.terminal import print

GROUP_VARIABLE = "AMAZON_ELECTRA_STORE_GROUP"
"""Environment variable: `true` lets the store's group read and write too."""
VARIABLES = {
    "PREFECT": ("PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_AUTH_STRING"),
    "MLFLOW": ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"),
}
"""Environment variables of each server's password. The first makes the server ask for one."""
USER = "electra"
"""Name that belongs to a password of ours."""
PASSWORD_FILE = "password.json"
"""In the store: the password that `up` made, as environment variables, for its owner alone."""


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
            f"cannot be written: {error.strerror}; choose another folder", "store", root
        ) from None


def is_shared_with_group() -> bool:
    """Return whether the setting lets the store's group in."""
    choice = os.environ.get(GROUP_VARIABLE, "").lower()
    if choice not in ("", "true", "false"):
        raise UserError(f"{GROUP_VARIABLE} is {choice!r}: write true or false")
    return choice == "true"


def make_prefect_password() -> dict[str, str]:
    """Return a new password of a Prefect server, as environment variables of it and its clients."""
    return dict.fromkeys(VARIABLES["PREFECT"], f"{USER}:{secrets.token_urlsafe(16)}")


def prepare_passwords(store: Path, without_password: bool) -> None:
    """Have both servers of `up` ask for a password, which its processes get in their environment.

    One that the environment does not name is made once for a store, kept in it and printed.
    """
    missing = [names for names in VARIABLES.values() if not os.environ.get(names[0])]
    if missing and without_password:
        print(
            "--no-password: every account and program on this machine can start runs, which read "
            "and write files as you, and can change what MLflow keeps",
            file=sys.stderr,
            flush=True,
        )
    elif missing:
        known = read_passwords(store)
        if any(name not in known for names in missing for name in names):
            known = keep_new_password(store)
        for names in missing:
            os.environ.update({name: known[name] for name in names})
    server, client = VARIABLES["PREFECT"]
    if os.environ.get(server):
        os.environ[client] = os.environ[server]


def keep_new_password(store: Path) -> dict[str, str]:
    """Return a new password of both servers, which the store keeps; print it."""
    made = make_prefect_password()
    word = made["PREFECT_API_AUTH_STRING"].removeprefix(f"{USER}:")
    made |= {"MLFLOW_TRACKING_USERNAME": USER, "MLFLOW_TRACKING_PASSWORD": word}
    path = store / PASSWORD_FILE
    with atomic_path(path) as temporary:
        temporary.touch(0o660 if is_shared_with_group() else 0o600)
        temporary.write_text(json.dumps(made, indent=1), encoding="utf-8")
    print("both servers ask for a name and a password; commands with this store find them:")
    print(f"{USER}:{word}   (kept in {path}; not shown again)", flush=True)
    return made


def use_passwords(store: Path) -> None:
    """Give this process's clients the password that `up` made for a store's servers.

    Servers elsewhere (PREFECT_API_URL, MLFLOW_TRACKING_URI) do not get it.
    """
    elsewhere = {"PREFECT": "PREFECT_API_URL", "MLFLOW": "MLFLOW_TRACKING_URI"}
    known = read_passwords(store)
    for server, names in VARIABLES.items():
        if not os.environ.get(elsewhere[server]):
            for name in names:
                if name in known and not os.environ.get(name):
                    os.environ[name] = known[name]


def read_passwords(store: Path) -> dict[str, str]:
    """Return the password that a store keeps, as environment variables; empty where it has none or
    this process may not read it. UserError for a file that others could have written.
    """
    path, is_shared = store / PASSWORD_FILE, is_shared_with_group()
    try:
        with open(path, encoding="utf-8", opener=open_without_waiting) as file:
            who = find_other_writer(os.fstat(file.fileno()), store.stat(), is_shared)
            known = None if who else json.load(file)
    except (FileNotFoundError, PermissionError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError):
        who, known = "", None
    if who:
        raise UserError(f"{path}: {who}; remove it, and `up` makes a new one")
    allowed = {name for names in VARIABLES.values() for name in names}
    if not isinstance(known, dict) or not all(isinstance(value, str) for value in known.values()):
        raise UserError(f"{path}: not JSON of names and texts; remove it, and `up` makes a new one")
    if others := sorted(known.keys() - allowed):
        raise UserError(
            f"{path}: {others[0]!r} is no variable of a password; remove it, and `up` makes a new "
            "file"
        )
    return known


def open_without_waiting(path: str, flags: int) -> int:
    """Open a file, also a FIFO that nobody writes to."""
    return os.open(path, flags | os.O_NONBLOCK)


def find_other_writer(file: os.stat_result, store: os.stat_result, is_shared: bool) -> str:
    """Return why somebody else may have written a store's file; empty if nobody could.

    The group of a store that is shared with it may, and so may the store's owner.
    """
    if not stat.S_ISREG(file.st_mode):
        return "not a plain file"
    if file.st_uid not in ({os.geteuid(), store.st_uid} if is_shared else {os.geteuid()}):
        return f"belongs to user {file.st_uid}, not to you"
    if file.st_mode & 0o002:
        return "everybody may write it"
    if file.st_mode & 0o020 and not (is_shared and file.st_gid == store.st_gid):
        return f"group {file.st_gid} may write it"
    return ""
