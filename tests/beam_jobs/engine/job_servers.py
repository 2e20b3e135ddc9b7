"""Beam's own job server, as a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import psutil

from tests.patience import eventually

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
def start_job_server(folder):
    """Yield the process and the port of a job server, which is killed with its children."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", SERVER, "--port", "0", "--port_file", "port"]
    with open(folder / "log", "ab") as log:
        command += ["--staging_dir", "staging"]
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    file = folder / "port"
    try:
        yield process, int(eventually(lambda: file.exists() and file.read_text()))
    finally:
        is_over = process.poll() is not None
        children = [] if is_over else psutil.Process(process.pid).children(recursive=True)
        for child in [*children, process]:
            child.kill()
        process.wait()
