"""Beam's own job server, as a process of its own."""

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


@contextmanager
def serve_grpc() -> Iterator[str]:
    """Yield the address of a gRPC server, which is all that is asked of a job server beforehand."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"localhost:{port}"
    server.stop(None)


@contextmanager
def start_module(module, *arguments, folder):
    """Run a module of this checkout in a folder of its own until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    found = dict(os.environ)
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with open(folder / "log", "ab") as log:
        process = subprocess.Popen(command, cwd=folder, env=found, stdout=log, stderr=log)
    try:
        yield process
    finally:
        kill_tree(process)


def kill_tree(process):
    """Kill a process and its children."""
    is_over = process.poll() is not None
    children = [] if is_over else psutil.Process(process.pid).children(recursive=True)
    for child in [*children, process]:
        child.kill()
    process.wait()


@contextmanager
def start_job_server(folder):
    """Yield the process and the port of a job server."""
    port_file = folder / "port"
    arguments = ["--port", 0, "--port_file", port_file, "--staging_dir", folder / "staging"]
    with start_module(SERVER, *arguments, folder=folder) as process:
        yield process, int(eventually(lambda: port_file.exists() and port_file.read_text()))
