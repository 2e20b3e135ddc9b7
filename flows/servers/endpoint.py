"""The champions of the registry behind HTTP: plain JSON, and version 2 of the Open Inference
Protocol (https://github.com/kserve/open-inference-protocol).

    POST /classify                 {"texts": ["Great lamp", null]}
    POST /v2/models/NAME/infer     {"inputs": [{"name": "text", "datatype": "BYTES", …}]}

Every answer names the version that gave it. Texts of requests that wait are classified together, a
thread for each core. A new champion is loaded beside the old one and takes over between two
batches; the one before stays loaded, so that `rollback` takes effect at once. The first champion of
another task is served as soon as it is loaded.
"""

import asyncio
import json
import math
import secrets
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Annotated, Any, Literal

import numpy as np
import uvicorn
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ValidationError

from amazon_electra.beam_jobs.config import ScoringConfig, ScoringPrecision
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.beam_jobs.scoring.classifier import Classifier, load_classifier
from amazon_electra.beam_jobs.scoring.score_files import prepare_text
from amazon_electra.flows.servers.health import ServerFailed
from amazon_electra.model.tracking.registry import Registry, RegistryAway, list_registries

BATCH_TEXTS = 64
"""From which on no further request joins a batch."""
CONCURRENT_REQUESTS = 1_000
"""Above which uvicorn answers 503."""


@dataclass(frozen=True)
class Limits:
    """What a request may hold; more is answered with 413."""

    body_bytes: int = 8 << 20
    texts: int = 1_000


@dataclass(frozen=True)
class Version:
    """A loaded version of the registry."""

    number: str
    classifier: Classifier


@dataclass
class Job:
    """Texts of one request, and the version that must answer; None: the champion."""

    texts: list[str]
    version: Version | None
    done: "Future[tuple[Version, np.ndarray]]" = field(default_factory=Future)


class Champion:
    """The champion of a registered model, which threads let classify what waits."""

    def __init__(self, registry: Registry, precision: ScoringPrecision, threads: int) -> None:
        self.registry, self.precision, self.threads = registry, precision, threads
        self.versions: list[Version] = []
        """The champion, then the one before it."""
        self._jobs = SimpleQueue[Job]()

    def take_over(self) -> None:
        """Load the registry's champion unless it is loaded; a mistake leaves the old one."""
        number = self.registry.get_by_alias("champion").get("version", "")
        known = {version.number: version for version in self.versions}
        if not number or self.versions[:1] == [known.get(number)]:
            return
        if number not in known:
            with tempfile.TemporaryDirectory(prefix="amazon-electra-") as scratch:
                copied, number = self.registry.copy_model(None, number, Path(scratch))
                [config] = copied.glob("artifacts/*/config.json")
                known[number] = Version(number, load_classifier(str(config.parent), self.precision))
        is_first = not self.versions
        self.versions = [known[number], *self.versions[:1]]
        for _ in range(self.threads if is_first else 0):
            threading.Thread(target=self._work, daemon=True).start()
        print(f"{self.registry.name}: version {number} answers", file=sys.stderr, flush=True)

    def find(self, number: str | None) -> Version | None:
        """Return the version with a number; None without one. LookupError where it is not
        loaded.
        """
        loaded = {version.number: version for version in self.versions}
        if number is not None and number not in loaded:
            raise LookupError(f"version {number} is not loaded; loaded: {', '.join(loaded)}")
        return None if number is None else loaded[number]

    async def classify(
        self, texts: list[str], version: Version | None
    ) -> tuple[Version, np.ndarray]:
        """Return the version that answered, and probabilities [texts, classes]."""
        job = Job(texts, version)
        self._jobs.put(job)
        return await asyncio.wrap_future(job.done)

    def _work(self) -> None:
        while True:
            jobs = [self._jobs.get()]
            with suppress(Empty):
                while sum(len(job.texts) for job in jobs) < BATCH_TEXTS:
                    jobs.append(self._jobs.get_nowait())
            champion = self.versions[0]
            batches: dict[str, tuple[Version, list[Job]]] = {}
            for job in jobs:
                version = job.version or champion
                batches.setdefault(version.number, (version, []))[1].append(job)
            for version, batch in batches.values():
                answer(version, batch)


class Champions:
    """The champion of each registered model that has one."""

    def __init__(self, uri: str, precision: ScoringPrecision, threads: int) -> None:
        self.uri, self.precision, self.threads = uri, precision, threads
        self.by_name: dict[str, Champion] = {}
        """Those that are loaded. Replaced, never changed: other threads iterate over it."""

    def take_over(self) -> dict[str, str]:
        """Load what is champion now; return what went wrong, by the name of the model."""
        try:
            registries = list_registries(self.uri)
        except RegistryAway as away:
            return {"registry": str(away)}
        errors = {}
        for registry in registries:
            name = registry.name
            champion = self.by_name.get(name) or Champion(registry, self.precision, self.threads)
            try:
                champion.take_over()
            except Exception as error:
                errors[name] = str(error) or repr(error)
            if champion.versions:
                self.by_name = {**self.by_name, name: champion}
        return errors

    def watch(self, seconds: float, stop: threading.Event) -> None:
        """Look for new champions until `stop` is set; print what goes wrong, and try it again."""
        printed: dict[str, str] = {}
        while not stop.wait(seconds):
            errors = self.take_over()
            for name, error in errors.items():
                if printed.get(name) != error:
                    print(f"{name}: what is loaded stays: {error}", file=sys.stderr, flush=True)
            printed = errors


def answer(version: Version, jobs: Sequence[Job]) -> None:
    """Classify the texts of some requests together."""
    try:
        texts = [text for job in jobs for text in job.texts]
        probabilities = version.classifier.compute_probabilities(texts)
    except Exception as error:
        for job in jobs:
            job.done.set_exception(error)
        return
    ends = np.cumsum([len(job.texts) for job in jobs])
    for job, own in zip(jobs, np.split(probabilities, ends[:-1]), strict=True):
        with suppress(asyncio.InvalidStateError):  # its client has gone
            job.done.set_result((version, own))


class Texts(BaseModel):
    """Body of /classify."""

    texts: list[Any]
    model: str | None = None


class InferenceInput(BaseModel):
    """A tensor of the Open Inference Protocol."""

    name: str
    shape: list[int]
    datatype: Literal["BYTES"]
    data: list[Any]


class InferenceRequest(BaseModel):
    """Body of /v2/models/NAME/infer."""

    id: str | None = None
    inputs: list[InferenceInput]


def build_app(champions: Champions, token: str, limits: Limits) -> FastAPI:
    """Return the application."""
    app = FastAPI(title="AmazonELECTRA", docs_url=None, redoc_url=None, openapi_url=None)
    repair = ScoringConfig().repair_run_ons
    bearer = HTTPBearer(auto_error=False)

    def check_token(
        given: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
    ) -> None:
        if given is None or not secrets.compare_digest(given.credentials.encode(), token.encode()):
            raise HTTPException(401, "send the header: Authorization: Bearer TOKEN")

    async def read_body(request: Request, kind: type[BaseModel]) -> Any:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > limits.body_bytes:
                raise HTTPException(413, f"the body has more than {limits.body_bytes:,} bytes")
        try:
            return kind.model_validate_json(bytes(body))
        except ValidationError as invalid:
            first = invalid.errors()[0]
            where = ".".join(map(str, first["loc"])) or "body"
            raise HTTPException(400, f"{where}: {first['msg']}") from None

    def check_number_of(texts: list[Any]) -> None:
        if len(texts) > limits.texts:
            raise HTTPException(413, f"{len(texts):,} texts; at most {limits.texts:,} a request")

    def find(name: str, number: str | None) -> tuple[Champion, Version | None]:
        served = champions.by_name
        if name not in served:
            raise HTTPException(404, f"no model {name!r}; served: {', '.join(served)}")
        try:
            return served[name], served[name].find(number)
        except LookupError as missing:
            raise HTTPException(404, str(missing)) from None

    @app.get("/health/ready")
    @app.get("/v2/health/ready")
    def ready() -> dict[str, bool]:
        return {"ready": True}  # the server starts once the champions are loaded

    @app.get("/health/live")
    @app.get("/v2/health/live")
    def live() -> dict[str, bool]:
        return {"live": True}

    guarded = APIRouter(dependencies=[Depends(check_token)])

    @guarded.post("/classify")
    async def classify(request: Request) -> dict[str, Any]:
        body = await read_body(request, Texts)
        check_number_of(body.texts)
        served = champions.by_name
        if body.model is None and len(served) > 1:
            raise HTTPException(400, f"model: name one of {', '.join(served)}")
        name = body.model or next(iter(served))
        champion, _ = find(name, None)
        read = [prepare_text(text, repair) for text in body.texts]
        version, found = await champion.classify(
            [text for text, reason in read if not reason], None
        )
        rows = iter(found)
        results = [
            {"label": None, "reason": reason}
            if reason
            else describe(version.classifier, next(rows))
            for _, reason in read
        ]
        return {"model": name, "version": version.number, "results": results}

    @guarded.get("/v2")
    def describe_server() -> dict[str, Any]:
        return {"name": "amazon-electra", "version": "2", "extensions": []}

    @guarded.get("/v2/models/{name}")
    @guarded.get("/v2/models/{name}/versions/{number}")
    def describe_model(name: str, number: str | None = None) -> dict[str, Any]:
        champion, version = find(name, number)
        classes = len((version or champion.versions[0]).classifier.labels)
        return {
            "name": name,
            "versions": [known.number for known in champion.versions],
            "platform": "onnxruntime_onnx",
            "inputs": [{"name": "text", "datatype": "BYTES", "shape": [-1]}],
            "outputs": [
                {"name": "label", "datatype": "BYTES", "shape": [-1]},
                {"name": "probabilities", "datatype": "FP64", "shape": [-1, classes]},
            ],
        }

    @guarded.get("/v2/models/{name}/ready")
    @guarded.get("/v2/models/{name}/versions/{number}/ready")
    def model_ready(name: str, number: str | None = None) -> dict[str, Any]:
        find(name, number)
        return {"name": name, "ready": True}

    @guarded.post("/v2/models/{name}/infer")
    @guarded.post("/v2/models/{name}/versions/{number}/infer")
    async def infer(name: str, request: Request, number: str | None = None) -> dict[str, Any]:
        body: InferenceRequest = await read_body(request, InferenceRequest)
        champion, pinned = find(name, number)
        if [one.name for one in body.inputs] != ["text"]:
            raise HTTPException(400, "inputs: give one, named text")
        data = body.inputs[0].data
        if math.prod(body.inputs[0].shape) != len(data):
            raise HTTPException(400, "inputs.0.shape: not that of its data")
        check_number_of(data)
        read = [prepare_text(text, repair) for text in data]
        for row, (_, reason) in enumerate(read):
            if reason:
                raise HTTPException(400, f"inputs.0.data.{row}: {reason}")
        version, found = await champion.classify([text for text, _ in read], pinned)
        labels = version.classifier.labels
        answers = version.classifier.answer(found)
        chosen = [one if isinstance(one, str) else json.dumps(one) for one in answers]
        shape = [len(data), len(labels)]
        return {
            **({"id": body.id} if body.id is not None else {}),
            "model_name": name,
            "model_version": version.number,
            "parameters": {"labels": json.dumps(labels)},
            "outputs": [
                {"name": "label", "datatype": "BYTES", "shape": shape[:1], "data": chosen},
                {
                    "name": "probabilities",
                    "datatype": "FP64",
                    "shape": shape,
                    "data": found.ravel().tolist(),
                },
            ],
        }

    app.include_router(guarded)
    return app


def describe(classifier: Classifier, probabilities: np.ndarray) -> dict[str, Any]:
    """Return the answer to one text."""
    answer: dict[str, Any] = {
        "label": classifier.answer(probabilities[None])[0],
        "probabilities": dict(zip(classifier.labels, probabilities.tolist(), strict=True)),
    }
    if classifier.decided_from:
        [answer["decision"]] = classifier.decide(probabilities[None])
    return {**answer, "reason": None}


def serve_champions(
    champions: Champions,
    host: str,
    port: int,
    token: str,
    refresh_seconds: float,
    limits: Limits = Limits(),
) -> None:
    """Serve until this process is interrupted. ServerFailed where a champion cannot be loaded,
    UserError where no model has one.
    """
    for name, error in champions.take_over().items():
        raise ServerFailed(f"{name}: {error}")
    if not champions.by_name:
        raise UserError(
            "no model of the registry is champion; `amazon-electra run` makes one, "
            "`amazon-electra promote VERSION` chooses one"
        )
    stop = threading.Event()
    threading.Thread(target=champions.watch, args=(refresh_seconds, stop), daemon=True).start()
    try:
        uvicorn.run(
            build_app(champions, token, limits),
            host=host,
            port=port,
            log_level="warning",
            limit_concurrency=CONCURRENT_REQUESTS,
            server_header=False,
        )
    finally:
        stop.set()
