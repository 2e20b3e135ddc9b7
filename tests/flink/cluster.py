"""The services of deploy/flink/compose.yaml as plain processes, on hosts that share nothing but an
S3 server: JobManager, job server, and on each of two hosts a TaskManager of one slot and its pool
of Python workers.

`make test-flink` gathers the programs in build/flink.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import pytest
import yaml

from amazon_electra.flows.configuration.form import Engine
from tests.flink.hosts import Host, Network, can_make_hosts
from tests.patience import eventually
from tests.s3_server import S3Server, connect

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy" / "flink"
BUILD = ROOT / "build" / "flink"
SERVICES: dict[str, dict] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
WORKERS = ("host-1", "host-2")
REST_PORT, SERVER_PORT = 8081, 8099
PROGRAMS = {  # of Flink, by what the official image calls them
    "taskmanager": "taskexecutor.TaskManagerRunner",
    "jobmanager": "entrypoint.StandaloneSessionClusterEntrypoint",
}
OF_IMAGE = {
    "blob.server.port": 6124,
    "query.server.port": 6125,
    "rest.address": "0.0.0.0",
    "rest.bind-address": "0.0.0.0",
    "jobmanager.bind-host": "0.0.0.0",
    "taskmanager.bind-host": "0.0.0.0",
    "taskmanager.cpu.cores": 1.0,  # the number of slots, as Flink's scripts work it out
}
"""What the entry point of Flink's official image (and its Dockerfile) writes into config.yaml."""
PYTHON_WORKER = "SdkHarness"
"""A word of the command of a worker that a pool has started."""
PROGRAMS_HERE = Path(sys.executable).parent
JVM = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


def _is_built() -> bool:
    return all((BUILD / name).is_dir() for name in ("beam", "client", "lib")) and bool(
        shutil.which("java")
    )


NEEDED = [
    pytest.mark.skipif(not can_make_hosts(), reason="no right to make network namespaces"),
    pytest.mark.skipif(not _is_built(), reason="Flink's programs are not here: make test-flink"),
]
"""Marks of tests that start a cluster."""


def find_host(service: str) -> str:
    """Return the name of the host whose network a service uses."""
    return str(SERVICES[service].get("network_mode", service)).removeprefix("service:")


def add_up(properties: Mapping[str, Any], *names: str) -> str:
    """Return the sum of sizes of a TaskManager's memory, as a JVM is told it."""
    return f"{sum(int(properties[f'taskmanager.memory.{n}'].removesuffix('m')) for n in names)}m"


def build_flink_command(program: str, environment: Mapping[str, str]) -> list[str]:
    """Return the command to which the official image's entry point comes: what Flink's scripts work
    out from the properties included.
    """
    properties = yaml.safe_load(environment["FLINK_PROPERTIES"])
    if program == "taskmanager":
        direct = ("framework.off-heap.size", "task.off-heap.size", "network.max")
        jvm = [
            f"-Xmx{add_up(properties, 'framework.heap.size', 'task.heap.size')}",
            f"-XX:MaxDirectMemorySize={add_up(properties, *direct)}",
        ]
    else:
        jvm = [f"-Xmx{properties['jobmanager.memory.heap.size']}"]
    jvm.append(f"-XX:MaxMetaspaceSize={add_up(properties, 'jvm-metaspace.size')}")
    address = {"jobmanager.rpc.address": environment["JOB_MANAGER_RPC_ADDRESS"]}
    words = [f"{name}={value}" for name, value in (OF_IMAGE | address | properties).items()]
    return [
        *["java", f"@{DEPLOY / 'java.options'}", *JVM, *jvm, "-Dlog4j2.level=INFO"],
        *["-cp", f"{BUILD}/lib/*:{BUILD}/beam/*", f"org.apache.flink.runtime.{PROGRAMS[program]}"],
        *["--configDir", str(DEPLOY), *(part for word in words for part in ("-D", word))],
    ]


class Cluster:
    """The hosts with what runs on them, and jobs sent to them."""

    def __init__(self, network: Network, hidden: Path, logs: Path, s3: S3Server):
        self.hosts, self.s3 = network.hosts, s3
        self._hidden, self._logs = hidden, logs
        self._here = {  # what is elsewhere in a container
            "python": sys.executable,
            "/opt/beam/job-server.sh": str(DEPLOY / "job-server.sh"),
            "/tmp/artifacts": "artifacts",
            "/data/store": str(hidden / "state"),
        }
        self.store = connect(s3)
        self.rest = f"{self.hosts['jobmanager'].address}:{REST_PORT}"
        self.engine = Engine(
            kind="flink",
            job_endpoint=f"jobserver:{SERVER_PORT}",
            flink_master=f"jobmanager:{REST_PORT}",
            workers=len(WORKERS),
        )

    def start(self) -> None:
        for name in ("jobmanager", *WORKERS, "jobserver"):
            self.start_services(name)
        eventually(lambda: self.count_slots() == len(WORKERS), self.read_logs)
        eventually(lambda: "JobService started" in self.read_log("jobserver"), self.read_logs)

    def start_services(self, host: str) -> None:
        """Start what runs on a host."""
        for name, about in SERVICES.items():
            if find_host(name) == host and "command" in about:
                self._start_service(name)

    def lose_host(self, name: str) -> None:
        """Kill all that runs on a host."""
        for process in self.hosts[name].list_processes():
            process.kill()

    def _start_service(self, name: str) -> None:
        about = SERVICES[name]
        if "entrypoint" in about:
            command = [*about["entrypoint"], *about["command"]]
        else:
            command = build_flink_command(*about["command"], about["environment"])
        self._run(name, command, name)

    def _run(self, service: str, command: list, log: str) -> subprocess.Popen:
        """Start a command on the host of a service, with the service's variables."""
        own = SERVICES[service]["environment"]
        found = self.s3.environment()  # the shell's
        given = {n: found.get(n, "") if v is None else self._translate(v) for n, v in own.items()}
        environment = given | {
            "PYTHONPATH": f"{ROOT}:{ROOT}/deploy/package",
            "PATH": f"{PROGRAMS_HERE}:{os.environ['PATH']}",  # a pool runs `python`
            "AWS_EC2_METADATA_DISABLED": "true",
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(self._hidden),
            "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={self._hidden}",
        }
        words = [self._translate(word) for word in command]
        host = self.hosts[find_host(service)]
        return host.start(words, self._logs / f"{log}.log", environment, self._hidden)

    def _translate(self, word: str) -> str:
        return self._here.get(word, word)

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
        """Start a job on the host `job`; its log bears the name of its output."""
        options = self.engine.list_options()
        command = [sys.executable, "-m", module, "--output", f"s3://store/{output}"]
        return self._run("job", [*command, *options, *words], output)

    def start_corpus(self, output: str, dump: str = "dump") -> subprocess.Popen:
        return self.start_job(
            "amazon_electra.beam_jobs.corpus_job", output, "--input", f"s3://store/{dump}"
        )

    def find_names(self, folder: str) -> list[str]:
        return [name.partition("/")[2] for name in self.store.find(f"store/{folder}")]

    def read_files(self, folder: str, suffix: str = "") -> dict[str, bytes]:
        """Return the contents of a folder in the store by name, of files that end so."""
        found = [name for name in self.store.find(f"store/{folder}") if name.endswith(suffix)]
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
        log = self.read_log(name.replace("host", "worker"))
        return log.count(f"{PYTHON_WORKER}(")


@contextmanager
def start_cluster(
    hidden: Path, logs: Path, limits: Mapping[str, list[str]] = MappingProxyType({})
) -> Iterator[Cluster]:
    """Run the cluster, and be on its network, within the block. All hosts but the store's see an
    empty folder in place of `hidden`; `limits` are words before what is started on a host.
    """
    with Network() as network, network.hosts["job"].enter():
        host: Host = network.hosts["s3"]
        s3 = S3Server(hidden / "s3", host.address, host.prefix)
        for name, words in limits.items():
            network.hosts[name].limit = words
        try:
            s3.start()
            cluster = Cluster(network, hidden, logs, s3)
            cluster.start()
            yield cluster
        finally:
            s3.kill()
