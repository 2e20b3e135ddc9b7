"""deploy/compose.yaml as plain processes of this machine: the commands and variables of its
services, with 127.0.0.1 for their names, free ports for theirs, and a bucket for the volume.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.served import find_free_ports

ROOT = Path(__file__).parents[1]
COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
WORD = "a-secret-word-of-the-tests"
FILLED = {
    "PREFECT_API_AUTH_STRING": f"electra:{WORD}",
    "MLFLOW_TRACKING_USERNAME": "electra",
    "MLFLOW_TRACKING_PASSWORD": WORD,
    "MLFLOW_FLASK_SERVER_SECRET_KEY": "of-the-tests",
    "POSTGRES_PASSWORD": "letters",
}
"""What somebody writes into .env."""
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("PREFECT_", "MLFLOW_", "AWS_", "AMAZON_ELECTRA_"))
}


class Compose:
    """The services, with what of a container is something else here."""

    def __init__(self, folder: Path, database_port: int, more: Mapping[str, str]):
        """`more` are variables that .env may add."""
        self.folder, self._more = folder, more
        self.prefect, self.mlflow = (f"http://127.0.0.1:{port}" for port in find_free_ports(2))
        prefect, mlflow = (url.rsplit(":", 1)[1] for url in (self.prefect, self.mlflow))
        self._here = [
            (r"http://(prefect|127\.0\.0\.1):4200", self.prefect),
            (r"http://(mlflow|127\.0\.0\.1):5000", self.mlflow),
            (r"\b4200\b", prefect),
            (r"\b5000\b", mlflow),
            (r"\b0\.0\.0\.0\b", "127.0.0.1"),
            ("--with-healthcheck", "--no-with-healthcheck"),  # all would have one port
            (r"@database/", f"@127.0.0.1:{database_port}/"),
            (r"/etc/mlflow-access\.ini", str(folder / "access")),
            (r"/data/store\b", str(folder / "volume")),
        ]
        (folder / "volume").mkdir()
        access = (ROOT / "deploy" / "mlflow-access.ini").read_text()
        (folder / "access").write_text(self._translate(access))

    def build_environment(self, service: str, home: Path) -> dict[str, str]:
        """Return the variables of a service, and those of the image."""
        own = COMPOSE["services"][service].get("environment", {})
        told = {
            name: self._translate(str(value)) for name, value in own.items() if value is not None
        }
        image = re.search(
            r"^ENV (.*?)[^\\]$", (ROOT / "deploy/Dockerfile").read_text(), re.M | re.S
        )
        assert image
        of_image = dict(re.findall(r"(\w+)=([^\s\\]+)", image[0]))
        of_image["PREFECT_SERVER_UI_STATIC_DIRECTORY"] = str(home / "prefect-ui")
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        homes = {"HOME": str(home), "PREFECT_HOME": str(home / ".prefect"), "PATH": path}
        homes["TMPDIR"] = str(home / "tmp")  # Prefect's workers of two users may not share one
        return {**CLEAN, **of_image, **told, **self._more, **homes}

    def start(self, service: str, home: Path) -> "subprocess.Popen[bytes]":
        """Start a service, in a folder of its own."""
        home.mkdir(exist_ok=True)
        about: dict[str, Any] = COMPOSE["services"][service]
        words = [*about["entrypoint"], *about.get("command", [])]
        with open(home / f"{service}.txt", "ab") as log:
            return subprocess.Popen(
                [self._translate(word) for word in words],
                env=self.build_environment(service, home),
                cwd=home,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _translate(self, text: str) -> str:
        filled = {**FILLED, **self._more}
        text = re.sub(
            r"\$\{(\w+)(?::[-?]([^}]*))?\}",
            lambda found: filled.get(found[1]) or ("" if ":?" in found[0] else found[2] or ""),
            text,
        )
        for pattern, here in self._here:
            text = re.sub(pattern, here, text)
        return text
