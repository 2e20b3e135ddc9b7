"""A session cluster of Flink on hosts that share nothing but an S3 server: the JobManager and
Beam's job server on one, a TaskManager of one slot with its pool of Python workers on each of two.

`make test-flink` gathers the programs in build/flink.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from flows.configuration.engine import Engine
from tests.beam_jobs.engine.job_servers import POOL, ROOT
from tests.flink.hosts import Host, Network, can_make_hosts
from tests.patience import eventually
from tests.s3_server import S3Server, connect

DEPLOY = ROOT / "deploy" / "flink"
BUILD = ROOT / "build" / "flink"
WORKERS = ("worker1", "worker2")
START_SECONDS = 120.0
POOL_PORT, REST_PORT, SERVER_PORT = 50_000, 8081, 8099
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
PYTHON_WORKER = "SdkHarness"
"""A word of the command of a worker that a pool has started."""
MEMORY = {  # what Flink's own scripts work out from taskmanager.memory.process.size
    "taskmanager.cpu.cores": "1.0",
    "taskmanager.memory.framework.heap.size": "64m",
    "taskmanager.memory.framework.off-heap.size": "32m",
    "taskmanager.memory.task.heap.size": "192m",
    "taskmanager.memory.task.off-heap.size": "64m",
    "taskmanager.memory.network.min": "64m",
    "taskmanager.memory.network.max": "64m",
    "taskmanager.memory.managed.size": "64m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "192m",
    "taskmanager.memory.jvm-overhead.max": "192m",
}
JVM = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
TASK_MANAGER_JVM = ["-Xmx256m", "-XX:MaxDirectMemorySize=160m", "-XX:MaxMetaspaceSize=256m"]
MANAGER_JVM = ["-Xmx384m", "-XX:MaxMetaspaceSize=256m"]


def _is_built() -> bool:
    return all((BUILD / name).is_dir() for name in ("beam", "client", "lib")) and bool(
        shutil.which("java")
    )


NEEDED = [
    pytest.mark.skipif(not can_make_hosts(), reason="no right to make network namespaces"),
    pytest.mark.skipif(not _is_built(), reason="Flink's programs are not here: make test-flink"),
]
"""Marks of tests that start a cluster."""


class Cluster:
    """The hosts with what runs on them, and jobs sent to them."""

    def __init__(self, network: Network, hidden: Path, logs: Path, s3: S3Server):
        self.hosts, self.s3 = network.hosts, s3
        self._hidden, self._logs = hidden, logs
        self.store = connect(s3)
        address = self.hosts["manager"].address
        self.rest = f"{address}:{REST_PORT}"
        self.engine = Engine(
            kind="flink",
            job_endpoint=f"{address}:{SERVER_PORT}",
            flink_master=self.rest,
            workers=len(WORKERS),
        )

    def start(self) -> None:
        address = self.hosts["manager"].address
        words = ["-D", f"rest.bind-address={address}", "-D", f"rest.address={address}"]
        self._start_flink("manager", JOB_MANAGER, MANAGER_JVM, words, "jobmanager")
        for name in WORKERS:
            self.start_pool(name)
            self.start_task_manager(name)
        options = ["--job-host", address, "--artifacts-dir", "artifacts"]
        self._run(
            "manager", [DEPLOY / "job-server.sh", f"{address}:{REST_PORT}", *options], "jobserver"
        )
        eventually(lambda: self.count_slots() == len(WORKERS), self.read_logs, START_SECONDS)
        eventually(
            lambda: "JobService started" in self.read_log("jobserver"),
            self.read_logs,
            START_SECONDS,
        )

    def start_pool(self, name: str) -> None:
        """Start the pool that starts Python workers beside a TaskManager."""
        self._run(name, [sys.executable, "-m", POOL, "--service_port", POOL_PORT], f"{name}-pool")

    def start_task_manager(self, name: str) -> None:
        words = [f"{key}={value}" for key, value in MEMORY.items()]
        words.append(f"taskmanager.host={self.hosts[name].address}")
        words = [part for word in words for part in ("-D", word)]
        self._start_flink(name, TASK_MANAGER, TASK_MANAGER_JVM, words, f"{name}-taskmanager")

    def _start_flink(
        self, name: str, program: str, jvm: list[str], words: list[str], log: str
    ) -> None:
        """Start a program of Flink's distribution with the configuration of deploy/flink."""
        command = ["java", f"@{DEPLOY / 'java.options'}", *JVM, *jvm]
        command += ["-Dlog4j2.level=INFO", "-cp", f"{BUILD}/lib/*:{BUILD}/beam/*", program]
        manager = f"jobmanager.rpc.address={self.hosts['manager'].address}"
        self._run(name, [*command, "--configDir", DEPLOY, "-D", manager, *words], log)

    def _run(self, name: str, command: list, log: str) -> subprocess.Popen:
        environment = self.s3.environment() | {
            "PYTHONPATH": str(ROOT),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # a pool runs `python`
            "AMAZON_ELECTRA_PRIVATE_HOSTS": self.hosts["manager"].address,
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(self._hidden),
            "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={self._hidden}",
        }
        return self.hosts[name].start(command, self._logs / f"{log}.log", environment, self._hidden)

    def ask(self, path: str) -> Any:
        """Return what the JobManager answers."""
        with urllib.request.urlopen(f"http://{self.rest}/{path}", timeout=30) as answer:
            return json.load(answer)

    def count_slots(self) -> int:
        with suppress(OSError):
            return self.ask("overview")["slots-total"]
        return 0

    def list_jobs(self) -> list[dict]:
        return sorted(self.ask("jobs/overview")["jobs"], key=lambda job: job["start-time"])

    def read_failures(self) -> list[dict]:
        """Return what Flink has noted of the newest job's failures, the newest first."""
        job = self.list_jobs()[-1]["jid"]
        return self.ask(f"jobs/{job}/exceptions")["exceptionHistory"]["entries"]

    def start_job(self, module: str, output: str, *words: str) -> subprocess.Popen:
        """Start a job on the host `jobs`; its log bears the name of its output."""
        options = self.engine.list_options()
        command = [sys.executable, "-m", module, "--output", f"s3://store/{output}"]
        return self._run("jobs", [*command, *options, *words], output)

    def start_run(self, *words: str) -> subprocess.Popen:
        """Start a run of the whole graph with its data stages on the cluster."""
        values = self.engine.model_dump(exclude_defaults=True).items()
        settings = [w for k, v in values for w in ("--set", f"engine.{k}={v}")]
        command = [sys.executable, "-m", "flows.cli.main", "run", *settings, *words]
        return self._run("jobs", command, "run")

    def start_corpus(self, output: str, dump: str = "dump") -> subprocess.Popen:
        return self.start_job("beam_jobs.corpus_job", output, "--input", f"s3://store/{dump}")

    def find_names(self, folder: str) -> list[str]:
        return [name.partition("/")[2] for name in self.store.find(f"store/{folder}")]

    def read_files(self, folder: str) -> dict[str, bytes]:
        """Return the contents of a folder in the store by name."""
        found = self.store.find(f"store/{folder}")
        return {name.split("/", 2)[2]: self.store.cat_file(name) for name in found}

    def put(self, folder: Path) -> None:
        self.store.put(f"{folder}/", f"store/{folder.name}/", recursive=True)

    def read_log(self, name: str) -> str:
        return (self._logs / f"{name}.log").read_text(errors="replace")

    def read_logs(self) -> str:
        """Return the end of everybody's log."""
        return "\n".join(self.read_log(path.stem)[-1500:] for path in self._logs.glob("*.log"))

    def find_processes(self, name: str, word: str) -> list[psutil.Process]:
        found = []
        for process in self.hosts[name].list_processes():
            with suppress(psutil.NoSuchProcess):
                if word in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def count_started(self, name: str) -> int:
        """Return how many Python workers a host's pool has started."""
        return self.read_log(f"{name}-pool").count(f"{PYTHON_WORKER}(")


@contextmanager
def start_cluster(hidden: Path, logs: Path) -> Iterator[Cluster]:
    """Run the cluster, and be on its network, within the block. All hosts but the store's see an
    empty folder in place of `hidden`.
    """
    with Network() as network, network.hosts["jobs"].enter():
        host: Host = network.hosts["s3"]
        s3 = S3Server(hidden / "s3", host.address, host.prefix)
        try:
            s3.start()
            cluster = Cluster(network, hidden, logs, s3)
            cluster.start()
            yield cluster
        finally:
            s3.kill()
