"""Beam's own job server and a pool of Python workers, as the processes that a cluster has."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import psutil

from tests.patience import eventually

ROOT = Path(__file__).parents[3]
SERVER = "apache_beam.runners.portability.local_job_service_main"
POOL = "apache_beam.runners.worker.worker_pool_main"


@contextmanager
def serve_grpc() -> Iterator[str]:
    """Yield the address of a gRPC server, which is all that is asked of a job server beforehand."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"localhost:{port}"
    server.stop(None)


@contextmanager
def start_module(module, *arguments, folder, code=ROOT):
    """Run a module in a folder of its own, with the code of a checkout, until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    found = os.environ | {
        "PYTHONPATH": str(code),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # the pool runs `python`
    }
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with open(folder / "log", "ab") as log:
        process = subprocess.Popen(command, cwd=folder, env=found, stdout=log, stderr=log)
    try:
        yield process
    finally:
        kill_tree(process)


def kill_tree(process):
    """Kill a process and its children: a pool ends its workers only when it is asked kindly."""
    for child in [*list_children(process), process]:
        child.kill()
    process.wait()


def list_children(process):
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@contextmanager
def start_job_server(folder):
    """Yield the process and the port of a job server."""
    port_file = folder / "port"
    arguments = ["--port", 0, "--port_file", port_file, "--staging_dir", folder / "staging"]
    with start_module(SERVER, *arguments, folder=folder) as process:
        yield process, int(eventually(lambda: port_file.exists() and port_file.read_text()))


@contextmanager
def start_pool(folder, port, code=ROOT):
    """Yield the process of a pool of workers that listens at the port."""
    with start_module(POOL, "--service_port", port, folder=folder, code=code) as process:
        eventually(lambda: any(c.laddr.port == port for c in list_connections(process)))
        yield process


def list_connections(process):
    return psutil.Process(process.pid).net_connections()
