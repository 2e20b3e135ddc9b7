"""Hosts of our own on one machine: each a network namespace with an address, a host name and a
file system view in which the folders of the others are empty.

They are joined by a bridge in a namespace of its own, so that nothing here meets what else runs on
the machine. Needs root and `ip netns`.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from fsspec.asyn import reset_after_fork

NETWORK = "10.77.7"
FIRST_ADDRESS = 10
NAMES = ("job", "s3", "jobmanager", "jobserver", "host-1", "host-2")
"""As deploy/flink/compose.yaml names what has a network of its own."""
CLONE_NEWNET = 0x40000000
"""Of linux/sched.h: a namespace of the network."""
ISOLATE = 'hostname "$1"; mount -t tmpfs none "$2"; cd "$2"; shift 2; exec "$@"'
"""Of a shell in namespaces of its own: name, folder to hide, then the command."""


def can_make_hosts() -> bool:
    """Return whether this machine lets us make network namespaces."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"):
        return False
    name = f"ae-{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode == 0
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return made


def run_ip(*words: object) -> None:
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True)


def enter_network(file: int) -> None:
    """Have this thread use the network whose namespace an open file is."""
    if ctypes.CDLL(None, use_errno=True).setns(file, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class Host:
    """One of them; its processes end with it."""

    def __init__(self, network: "Network", name: str, address: str):
        self.name, self.address, self.space = name, address, f"{network.prefix}-{name}"
        self.prefix = ("ip", "netns", "exec", self.space)
        self.limit: list[str] = []
        """Words before every command: of a program that limits what it may use."""
        self._network = network

    def start(self, command: list, log: Path, environment: dict, folder: Path) -> subprocess.Popen:
        """Start a command here that sees an empty `folder`, its working folder; `log` lies outside
        of what it sees.
        """
        words = [*self.limit, *self.prefix, "unshare", "--mount", "--uts"]
        words += ["sh", "-e", "-c", ISOLATE, "sh", self.name, folder, *command]
        with open(log, "ab") as out:
            return subprocess.Popen(
                [str(word) for word in words],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                env=os.environ | environment,
            )

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Have this thread, and all that it starts, use the host's network within the block.

        fsspec's thread begins anew on both sides, as it stays in the network in which it began.
        """
        with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{self.space}") as here:
            enter_network(here.fileno())
            reset_after_fork()
            try:
                yield
            finally:
                enter_network(home.fileno())
                reset_after_fork()

    def list_processes(self) -> list[psutil.Process]:
        """Return what runs here, the oldest first."""
        said = subprocess.run(["ip", "netns", "pids", self.space], capture_output=True, text=True)
        found = []
        for pid in said.stdout.split():
            with suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(int(pid)))
        return sorted(found, key=lambda process: process.create_time())

    def remove(self) -> None:
        for process in self.list_processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        run_ip("netns", "del", self.space)
        shutil.rmtree(Path("/etc/netns", self.space), ignore_errors=True)


class Network:
    """The hosts, and the bridge that joins them."""

    def __init__(self) -> None:
        self.prefix = f"ae-{os.getpid()}"
        self.switch = f"{self.prefix}-switch"
        self.hosts: dict[str, Host] = {}

    def __enter__(self) -> "Network":
        run_ip("netns", "add", self.switch)
        run_ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        run_ip("-n", self.switch, "link", "set", "bridge", "up")
        names = [f"{NETWORK}.{FIRST_ADDRESS + i} {name}\n" for i, name in enumerate(NAMES)]
        for i, name in enumerate(NAMES):
            self._add_host(name, f"{NETWORK}.{FIRST_ADDRESS + i}", names)
        return self

    def _add_host(self, name: str, address: str, names: list[str]) -> None:
        host = self.hosts[name] = Host(self, name, address)
        files = Path("/etc/netns", host.space)  # `ip netns exec` lays them over /etc
        files.mkdir(parents=True)
        (files / "hosts").write_text("".join(["127.0.0.1 localhost\n", *names]))
        run_ip("netns", "add", host.space)
        cable = ["type", "veth", "peer", "name", name, "netns", self.switch]
        run_ip("-n", host.space, "link", "add", "eth0", *cable)
        run_ip("-n", self.switch, "link", "set", name, "master", "bridge", "up")
        run_ip("-n", host.space, "addr", "add", f"{address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            run_ip("-n", host.space, "link", "set", device, "up")

    def __exit__(self, *error: object) -> None:
        for host in self.hosts.values():
            host.remove()
        run_ip("netns", "del", self.switch)
