"""A folder with the file system of another machine, in which commands run as if it were the root.
It stands in for a container where no container engine runs. debootstrap makes it.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

PYTHON_RELEASE = "bookworm"
"""The release of Debian whose Python is 3.11."""
PATH = "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"
NETWORK_FILES = ["/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"]
ENTER = """
mount --rbind /dev "$1/dev"
mount -t proc proc "$1/proc"
root="$1"; user="$2"; shift 2
exec chroot --userspec="$user" "$root" "$@"
"""


class Chroot:
    """A root folder and the commands that run in it."""

    def __init__(self, root: Path):
        self.root = root

    def run(
        self,
        words: Sequence[str],
        *,
        user: str = "root",
        folder: str = "/",
        environment: Mapping[str, str] | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end, in process and mount namespaces of its own: what it starts ends
        with it. Its output and errors are together in `stdout`.
        """
        variables = {"PATH": PATH, "HOME": self._find_home(user), **(environment or {})}
        settings = [f"{name}={value}" for name, value in variables.items()]
        inside = ["env", "-i", f"--chdir={folder}", *settings, *words]
        namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        return subprocess.run(
            [*namespaces, "sh", "-ec", ENTER, "sh", str(self.root), user, *inside],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def find_path(self, inside: str) -> Path:
        """Return where an absolute path of this file system lies on the machine."""
        return self.root / inside.lstrip("/")

    def _find_home(self, user: str) -> str:
        accounts = (self.root / "etc/passwd").read_text()
        found = re.search(rf"^{re.escape(user)}:(?:[^:]*:){{4}}([^:]*):", accounts, re.M)
        assert found, f"no user {user}"
        return found[1]


def make_debian(root: Path, packages: Sequence[str]) -> Chroot:
    """Make Debian with a few packages in a new folder, from debootstrap's mirror."""
    words = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}"]
    done = subprocess.run(
        [*words, PYTHON_RELEASE, str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    for file in NETWORK_FILES:
        shutil.copyfile(file, root / file.lstrip("/"))
    return Chroot(root)


def install_packages(made: Chroot, *packages: str) -> None:
    """Install packages of Debian in a chroot."""
    install = f"apt-get update -qq && apt-get install -y -qq {' '.join(packages)}"
    done = made.run(["sh", "-c", install], environment={"DEBIAN_FRONTEND": "noninteractive"})
    assert done.returncode == 0, done.stdout[-2000:]


def copy_chroot(made: Chroot, root: Path) -> Chroot:
    """Return a copy, so that another image may begin with the same."""
    subprocess.run(["cp", "--archive", made.root, root], check=True)
    return Chroot(root)


def list_pip_variables() -> dict[str, str]:
    """Return pip's settings of this machine but those that name its folders."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PIP_") and not value.startswith("/")
    }
