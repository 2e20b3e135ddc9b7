"""Who may reach what `up` serves and what a store holds, on a machine that several people use."""

import errno
import importlib.util
import json
import os
import pwd
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from beam_jobs.core.errors import UserError
from beam_jobs.core.files import atomic_path

GROUP_VARIABLE = "AMAZON_ELECTRA_STORE_GROUP"
"""Environment variable: `true` lets the store's group read and write too."""
PASSWORDS = ("PREFECT_SERVER_API_AUTH_STRING", "MLFLOW_TRACKING_USERNAME")
"""Environment variables that make the two servers ask for a password."""
PASSWORD_FILE = "password.json"
"""In the store: the password that `up` made, as environment variables, for its owner alone."""
SHADOW, NSSWITCH = Path("/etc/shadow"), Path("/etc/nsswitch.conf")
SSSD = Path("/var/lib/sss/pipes/nss")
"""Is there while sssd runs; distributions name `sss` in nsswitch.conf without it too."""
LOCAL_SOURCES = {"files", "systemd", "compat", "altfiles", "extrausers", "db", "mymachines"}
"""Sources of nsswitch.conf whose users are this machine's own."""
NO_SHELLS = ("/nologin", "/false", "/sync", "/halt", "/shutdown")
FIRST_PERSON = 1000
"""Number of the first user that is a person (/etc/login.defs of the usual distributions)."""


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


def prepare_passwords(store: Path, without_password: bool) -> None:
    """Have both servers ask for a password where others can log in to this machine.

    One that the environment does not name is made, kept in the store and printed once.
    """
    if without_password:
        return
    use_passwords(store)
    missing = [name for name in PASSWORDS if not os.environ.get(name)]
    if not missing or not (others := list_other_people()):
        return
    if importlib.util.find_spec("flask_wtf") is None:
        raise UserError(
            f"{', '.join(others[:3])} can log in to this machine too and could start runs, which "
            'read files as you; a password needs: pip install "mlflow[auth]"; or give --no-password'
        )
    word = secrets.token_urlsafe(16)
    made: dict[str, str] = {}
    if PASSWORDS[0] in missing:
        made |= dict.fromkeys((PASSWORDS[0], "PREFECT_API_AUTH_STRING"), f"electra:{word}")
    if PASSWORDS[1] in missing:
        made |= {PASSWORDS[1]: "electra", "MLFLOW_TRACKING_PASSWORD": word}
    path = store / PASSWORD_FILE
    with atomic_path(path) as temporary:
        temporary.touch(0o660 if is_shared_with_group() else 0o600)
        temporary.write_text(json.dumps(made, indent=1))
    use_passwords(store)
    print(f"{', '.join(others[:3])} can log in to this machine too, so the servers ask for a")
    print(f"password  electra:{word}   (kept in {path}; not shown again)", flush=True)


def use_passwords(store: Path) -> None:
    """Give this process's clients the password that `up` made for a store's servers.

    Servers elsewhere (PREFECT_API_URL, MLFLOW_TRACKING_URI) are not told it.
    """
    try:
        known = json.loads((store / PASSWORD_FILE).read_text())
    except (FileNotFoundError, PermissionError, NotADirectoryError):
        return
    elsewhere = [n for n in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI") if os.environ.get(n)]
    for name, value in known.items():
        if not any(name.startswith(other.split("_")[0]) for other in elsewhere):
            os.environ.setdefault(name, value)


def list_other_people() -> list[str]:
    """Return who else can log in to this machine, root left out: users, directory services."""
    try:
        lines = SHADOW.read_text().splitlines()
        hashes = dict(line.split(":")[:2] for line in lines if ":" in line)
    except OSError:
        hashes = None
    people = [
        user.pw_name
        for user in pwd.getpwall()
        if user.pw_uid not in (0, os.getuid()) and can_log_in(user, hashes)
    ]
    with suppress(OSError):
        for line in NSSWITCH.read_text().splitlines():
            name, _, sources = line.partition("#")[0].partition(":")
            found = set(re.sub(r"\[.*?\]", "", sources).split()) - LOCAL_SOURCES
            if name.strip() == "passwd":
                services = sorted(s for s in found if s != "sss" or SSSD.exists())
                people += [f"the users of {service}" for service in services]
    return people


def can_log_in(user: pwd.struct_passwd, hashes: Mapping[str, str] | None) -> bool:
    """Return whether a user has a shell, and a password or an authorized key.

    `hashes` are those of /etc/shadow; None where this process may not read it: then people count.
    """
    if user.pw_shell.endswith(NO_SHELLS):
        return False
    if hashes is None:
        return user.pw_uid >= FIRST_PERSON
    if not hashes.get(user.pw_name, "!").startswith(("!", "*")):
        return True
    return any(Path(user.pw_dir, ".ssh").glob("authorized_keys*"))
