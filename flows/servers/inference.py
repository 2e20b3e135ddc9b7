"""Servers of other projects that classify texts, by the protocols that they speak:

- MLflow: POST URL/invocations
- text-embeddings-inference: POST URL/predict
- KServe, version 1: POST URL:predict, where URL ends with /v1/models/NAME
- Open Inference (KServe 2, MLServer, Triton): POST URL/infer, URL ends with /v2/models/NAME
"""

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.servers.settings import TOKEN_VARIABLE

ANSWER_SECONDS = 120.0
"""A server that loads its model with the first request takes that long."""


@dataclass(frozen=True)
class Protocol:
    """How texts are sent to a kind of server, and its answer for each is read."""

    name: str
    suffix: str
    """After the URL."""
    build: Callable[[list[str]], Any]
    read: Callable[[Any], list[Any]]

    def ask(self, url: str, texts: list[str]) -> list[Any]:
        """Return the answer for each text; UserError where the server gives none."""
        try:
            answers = self.read(send(f"{url}{self.suffix}", self.build(texts)))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise UserError(f"{url} does not answer as {self.name} does ({error!r})") from error
        if len(answers) != len(texts):
            raise UserError(f"{url} gives {len(answers)} answers to {len(texts)} texts")
        return answers


def build_tensor(texts: list[str]) -> dict[str, Any]:
    """Return a request of Open Inference."""
    tensor = {"name": "text", "shape": [len(texts)], "datatype": "BYTES", "data": texts}
    return {"inputs": [tensor]}


def read_tensor(answer: dict[str, Any]) -> list[Any]:
    """Return the rows of an answer of Open Inference: those of the output `probabilities`, else of
    the first one.
    """
    outputs = answer["outputs"]
    output = next((one for one in outputs if one["name"] == "probabilities"), outputs[0])
    data, rows = output["data"], output["shape"][0]
    if output["datatype"] == "BYTES":
        return list(data)
    width = len(data) // rows  # row by row
    return [data[i : i + width] for i in range(0, len(data), width)]


MLFLOW = Protocol("MLflow", "/invocations", lambda t: {"inputs": t}, lambda a: a["predictions"])
TEI = Protocol(
    "text-embeddings-inference",
    "/predict",
    lambda texts: {"inputs": [[text] for text in texts], "truncate": True},
    lambda answer: list(answer),
)
KSERVE = Protocol("KServe", ":predict", lambda t: {"instances": t}, lambda a: a["predictions"])
OPEN_INFERENCE = Protocol("Open Inference", "/infer", build_tensor, read_tensor)


def send(url: str, body: Any = None) -> Any:
    """Return the JSON that a server answers with; UserError where it does not, or refuses. The
    token of `amazon-electra serve` is sent where there is one.
    """
    content = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    if token := os.environ.get(TOKEN_VARIABLE):
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, content, headers)
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            why = " ".join(error.read(200).decode(errors="replace").split())
        raise UserError(f"{url} answers {error.code}: {why}") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{url} gives no JSON ({error})") from error


def find_protocol(url: str) -> Protocol:
    """Return the protocol of a server, by its URL or by what it says of itself."""
    if found := re.search(r"/v([12])/models/[^/]+$", url):
        return KSERVE if found[1] == "1" else OPEN_INFERENCE
    try:
        about = send(f"{url}/info")
    except UserError:
        return MLFLOW  # which has no such page
    return TEI if isinstance(about, dict) and "model_id" in about else MLFLOW
