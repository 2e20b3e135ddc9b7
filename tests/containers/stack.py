"""deploy/compose.yaml in containers, by Docker Compose.

A Docker daemon that answers takes the images that the files name. Where none does, root starts one
in `build/containers`, or the folder that AMAZON_ELECTRA_CONTAINERS names (20 GB), on base images
that debootstrap makes, with the CA certificates and the settings of pip of this machine. Images
stay there for the next time; the containers and their volumes go.
"""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.patience import eventually

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("AMAZON_ELECTRA_CONTAINERS") or ROOT / "build" / "containers")
PASSED_ON = ("PYTHON_IMAGE", "POSTGRES_IMAGE", "TORCH_INDEX", "PIP_INDEX_URL")
"""Variables of .env that this process may have."""


def call(*words: object) -> str:
    """Run a command and return what it prints; AssertionError with all of it where it fails."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
    return done.stdout


def answers() -> bool:
    return subprocess.run(["docker", "info"], capture_output=True).returncode == 0


@dataclass(frozen=True)
class Stack:
    """The services, and .env."""

    compose: list[str]
    """Compose, with its files."""
    dotenv: Mapping[str, str]

    def __call__(self, *words: object) -> str:
        """Run a command of Compose."""
        return call(*self.compose, *words)

    def crash(self, service: str, when: str, seconds: float = 1000.0) -> None:
        """Once a command of the shell succeeds in a container, kill all processes there but its
        init, which ends with them: `docker kill` would count as a stop, after which nothing
        restarts. subprocess.TimeoutExpired where the command never does.
        """
        script = f"until {when} >/dev/null 2>&1; do sleep 0.05; done; kill -9 -1"
        words = ["exec", "-T", service, "sh", "-c", script]
        subprocess.run([*self.compose, *words], cwd=ROOT, timeout=seconds)  # is killed itself

    def count_restarts(self, service: str) -> int:
        """How often Docker has started a container again that had ended by itself."""
        [container] = self("ps", "-q", service).split()
        return int(call("docker", "inspect", "-f", "{{.RestartCount}}", container))


@contextmanager
def serve_docker() -> Iterator[dict[str, str]]:
    """Have a daemon while the block lasts; yield the base images that .env has to name."""
    if answers():
        yield {}
        return
    if os.geteuid() or not (shutil.which("dockerd") and shutil.which("debootstrap")):
        pytest.skip("needs Docker, or root, dockerd (docker.io) and debootstrap")
    FOLDER.mkdir(parents=True, exist_ok=True)
    socket = f"unix://{FOLDER}/docker.sock"
    places = ["--data-root", f"{FOLDER}/data", "--exec-root", f"{FOLDER}/exec"]
    with open(FOLDER / "dockerd.log", "ab") as log, pytest.MonkeyPatch.context() as patch:
        words = ["dockerd", *places, "--pidfile", f"{FOLDER}/pid", "-H", socket]
        daemon = subprocess.Popen(words, stdout=log, stderr=log)
        patch.setenv("DOCKER_HOST", socket)
        try:
            eventually(lambda: answers() or daemon.poll() is not None)
            make_base_images()
            yield {"PYTHON_IMAGE": "python:test", "POSTGRES_IMAGE": "postgres:test"}
        finally:
            daemon.terminate()
            daemon.wait()


def make_base_images() -> None:
    """Make the images that are missing, by debootstrap."""
    if not call("docker", "images", "-q", "debian:test"):
        root = FOLDER / "debian"
        shutil.rmtree(root, ignore_errors=True)
        call("debootstrap", "--variant=minbase", "bookworm", root)
        shutil.copy("/etc/ssl/certs/ca-certificates.crt", root / "etc" / "machine.crt")
        if Path("/etc/pip.conf").exists():
            shutil.copy("/etc/pip.conf", root / "etc" / "pip.conf")
        keep_none = 'APT::Keep-Downloaded-Packages "false";'
        (root / "etc" / "apt" / "apt.conf.d" / "keep-none").write_text(keep_none)
        call("sh", "-c", f"tar -C '{root}' -c . | docker import - debian:test")
        shutil.rmtree(root)
    for name in ("python", "postgres"):
        if not call("docker", "images", "-q", f"{name}:test"):
            call("docker", "build", "--target", name, "-t", f"{name}:test", Path(__file__).parent)


@contextmanager
def serve_stack(folder: Path, **more: str) -> Iterator[Stack]:
    """Build the image and bring the services up, as the head of compose.yaml says; `more` are
    further variables of .env.
    """
    with serve_docker() as images:
        words = ["docker", "compose"]
        if subprocess.run([*words, "version"], capture_output=True).returncode:
            words = [str(FOLDER / "docker-compose")]
        drawn = {
            name: secrets.token_hex(16)
            for name in (
                "MLFLOW_FLASK_SERVER_SECRET_KEY",
                "MLFLOW_TRACKING_PASSWORD",
                "POSTGRES_PASSWORD",
            )
        }
        access = f"electra:{secrets.token_hex(16)}"
        named = {"PREFECT_API_AUTH_STRING": access, "MLFLOW_TRACKING_USERNAME": "electra"}
        passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        file = folder / "dotenv"
        dotenv = {**named, **drawn, **images, **passed, **more}
        file.write_text("".join(f"{name}={value}\n" for name, value in dotenv.items()))
        stack = Stack([*words, "-f", "deploy/compose.yaml", "--env-file", str(file)], dotenv)
        stack("build", "worker-cpu")
        try:
            stack("up", "-d", "--no-build")
            yield stack
        finally:
            stack("down", "--volumes")
