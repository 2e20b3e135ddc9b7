"""MLflow's own application behind three guards: `mlflow server --app-name amazon-electra`.

- Pages of other origins neither read nor change it; other ports of this machine are others too,
  which MLflow itself lets in.
- The server alone decides where files are kept. An experiment in any folder would read and write
  whatever the server's user can. Experiments whose artifacts are files of the server are shown at
  `mlflow-artifacts:`, so that clients get them from the server and need no access to its disk.
- What starts programs or asks other hosts (the assistant, gateways, webhooks, jobs) is refused.

It asks for a password where MLFLOW_AUTH_CONFIG_PATH is set.
"""

import json
import os
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.status import HTTP_403_FORBIDDEN, WS_1008_POLICY_VIOLATION
from starlette.types import ASGIApp, Message, Receive, Scope, Send

API = re.compile(r"/(?:ajax-)?api/\d\.\d/?(mlflow|mlflow-artifacts)/([^/]*)")
CHANGED = {
    *("experiments", "runs", "metrics", "logged-models", "registered-models", "model-versions"),
    *("artifacts", "upload-artifact", "traces", "unified-traces", "datasets", "issues"),
    *("label-schemas", "review-queues", "users", "roles", "permissions"),
}
"""Parts of the API that clients may change."""
CLOSED = {"assistant"}
"""Parts that are refused to readers too."""
PROXIED = "mlflow-artifacts:"
"""Scheme of what clients read and write through the server."""
SOURCES = (PROXIED, "runs:", "models:")
"""Schemes of a model version's source: files that the server keeps."""


class MlflowGuard:
    """Refuses what the module's docstring names, and shows the server's files as proxied ones."""

    def __init__(self, app: ASGIApp, origins: Iterable[str] = (), root: str = ""):
        """`origins` are further pages that may use the server; `root` is the file address under
        which experiments keep their artifacts, empty where that is none.
        """
        self.app, self.origins = app, {origin.rstrip("/") for origin in origins}
        self.root = f"{root.rstrip('/')}/" if root.startswith("file:") else ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # MLflow has none
            await receive()
            await send({"type": "websocket.close", "code": WS_1008_POLICY_VIOLATION})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path, headers = scope["path"].rstrip("/"), Headers(scope=scope)
        why = self.explain_origin(headers) or explain_part(scope["method"], path)
        create = re.search(r"/(experiments|model-versions)/create$", path)
        if create and not why:
            try:
                content = json.loads(await Request(scope, receive).body())
                why = self.check_places(create[1], content)
                body = json.dumps(content).encode()
            except (ValueError, RecursionError):
                why = "the request is not JSON, or nested too deeply"
            if not why:
                scope, receive = replace_body(scope, body)
        if why:
            answer = {"error_code": "PERMISSION_DENIED", "message": why}
            await JSONResponse(answer, HTTP_403_FORBIDDEN)(scope, receive, send)
            return
        api = API.match(path)
        names_places = path == "/graphql" or (api and api[1] == "mlflow")
        translated = (
            JsonTranslation(self.translate, send).send if self.root and names_places else send
        )
        await self.app(scope, receive, translated)

    def explain_origin(self, headers: Headers) -> str:
        """Return why a page of another origin is refused; empty for our own, and for no page."""
        for origin in headers.getlist("origin"):
            if origin not in self.origins and urlsplit(origin).netloc != headers.get("host"):
                return (
                    f"pages of {origin} may not use this server "
                    "(MLFLOW_SERVER_CORS_ALLOWED_ORIGINS allows them)"
                )
        return ""

    def check_places(self, made: str, content: Any) -> str:
        """Return why a new experiment or model version is refused; empty where it is not. A
        version's source becomes the address that the server knows, in place.
        """
        if not isinstance(content, dict):
            return "the request is no JSON object"
        if made == "experiments":
            place = content.pop("artifact_location", "")
            others = sorted(content.keys() - {"name", "tags"})
            if place or others:
                name = others[0] if others else "artifact_location"
                return f"{name}: the server chooses where an experiment keeps its files"
            return ""
        source = content.get("source")
        if not isinstance(source, str) or not source.startswith(SOURCES):
            return f"source: only what this server keeps can be registered ({', '.join(SOURCES)})"
        if self.root and source.startswith(f"{PROXIED}/"):
            content["source"] = self.root + source.removeprefix(f"{PROXIED}/").lstrip("/")
        return ""

    def translate(self, body: bytes) -> bytes:
        """Return JSON with the server's file addresses as proxied ones."""
        root = json.dumps(self.root)[1:-1].encode()
        proxied = PROXIED.encode()
        return body.replace(root, proxied + b"/").replace(root[:-1] + b'"', proxied + b'/"')


class JsonTranslation:
    """Sends an answer on, changed by a function if it is JSON."""

    def __init__(self, change: Any, send: Send):
        self._change, self._send = change, send
        self._start: Message | None = None
        self._parts: list[bytes] = []

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            kind = Headers(scope={"headers": message["headers"], "type": "http"}).get(
                "content-type", ""
            )
            if kind.startswith("application/json"):
                self._start = message
                return
        if self._start is None:
            await self._send(message)
            return
        self._parts.append(message.get("body", b""))
        if not message.get("more_body"):
            body = self._change(b"".join(self._parts))
            MutableHeaders(scope=self._start)["content-length"] = str(len(body))
            await self._send(self._start)
            await self._send({"type": "http.response.body", "body": body})


def explain_part(method: str, path: str) -> str:
    """Return why a part of the server is closed; empty where it is open."""
    api = API.match(path)
    part = api[2] if api else path.strip("/").split("/")[0]
    is_read = method in ("GET", "HEAD", "OPTIONS")
    is_closed = part in CLOSED or path.endswith("/invoke")
    if api and api[1] == "mlflow-artifacts":
        return ""
    if not is_closed and (is_read or (api and part in CHANGED) or path == "/graphql"):
        return ""
    return f"{part}: closed on this server, which keeps runs and models only"


def replace_body(scope: Scope, body: bytes) -> tuple[Scope, Receive]:
    """Return a request with another body."""
    others = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
    headers = [*others, (b"content-length", str(len(body)).encode())]

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return {**scope, "headers": headers}, receive


def create_app() -> ASGIApp:
    """Return MLflow's application behind the guard; `mlflow server` has set its environment."""
    # The page of runs asks for a gateway's endpoints: where none is named, MLflow has no endpoints.
    os.environ.pop("MLFLOW_DEPLOYMENTS_TARGET", None)
    if os.environ.get("MLFLOW_AUTH_CONFIG_PATH"):
        from mlflow.server import auth

        app: ASGIApp = auth.create_app()
    else:
        from mlflow.server.fastapi_app import app
    origins = os.environ.get("MLFLOW_SERVER_CORS_ALLOWED_ORIGINS", "").split(",")
    allowed = [origin.strip() for origin in origins if origin.strip() not in ("", "*")]
    return MlflowGuard(app, allowed, os.environ.get("MLFLOW_DEFAULT_ARTIFACT_ROOT", ""))
