"""What a server of objects may answer: its errors in one line, and which of them pass.

Amazon's own errors come from a small server that says what its documentation shows, those of gs://
from tests/gcs_server.py.
"""

import threading
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from amazon_electra.beam_jobs.core.errors import TransientError, UserError
from amazon_electra.flows.store.bucket import Bucket


@contextmanager
def answer(status: int, code: str, message: str, times: int = 1_000_000):
    """An address where every request fails so, or the first ones do and the others find nothing."""
    left = [times]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # clients wait for "100 Continue"

        def do_GET(self):
            size = int(self.headers.get("Content-Length") or 0)
            self.rfile.read(size)
            left[0] -= 1
            is_bad = left[0] >= 0
            kind = (code, message) if is_bad else ("NoSuchKey", "The specified key does not exist.")
            body = f"<Error><Code>{kind[0]}</Code><Message>{kind[1]}</Message></Error>".encode()
            self.send_response(status if is_bad else 404)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Type", "application/xml")
            self.send_header("x-amz-bucket-region", "eu-central-1")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_PUT = do_HEAD = do_GET

        def log_message(self, *words): ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def use(monkeypatch):
    from s3fs import S3FileSystem

    def point(url: str, **more: str) -> None:
        known = {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "AWS_CONFIG_FILE": "/dev/null",
        }
        for name, value in {**known, **more}.items():
            monkeypatch.setenv(name, value)
            if not value:
                monkeypatch.delenv(name)
        S3FileSystem.clear_instance_cache()

    yield point
    S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize(
    ("status", "code", "message", "named"),
    [
        (400, "AuthorizationHeaderMalformed", "expecting 'eu-central-1'", "AWS_DEFAULT_REGION"),
        (403, "AccessDenied", "Access Denied", "Access Denied"),
        (404, "NoSuchBucket", "The specified bucket does not exist", "no such bucket"),
    ],
)
def test_what_the_user_can_put_right_is_one_line(use, status, code, message, named):
    with answer(status, code, message) as url:
        use(url)
        with pytest.raises(UserError, match=named) as told:
            Bucket("s3://bucket/x", patience=0).create("a", b"1")
    assert "\n" not in str(told.value)


def test_without_credentials_their_names_are_told(use):
    use("http://127.0.0.1:1", AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
    with pytest.raises(UserError, match="AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"):
        Bucket("s3://bucket/x", patience=0).create("a", b"1")


def test_an_error_of_the_server_is_asked_again(use):
    with answer(503, "ServiceUnavailable", "Reduce your request rate", times=6) as url:
        use(url)
        assert Bucket("s3://bucket/x", patience=60).read("a") is None


def test_a_server_that_stays_away_is_told_as_such(use):
    use("http://127.0.0.1:1")
    with pytest.raises(TransientError):
        Bucket("s3://bucket/x", patience=0).read("a")


@pytest.mark.parametrize(
    ("status", "message", "named"),
    [
        (403, "a does not have storage.objects.create access", "storage.objects.create"),
        (401, "Anonymous caller does not have access", "GOOGLE_APPLICATION_CREDENTIALS"),
        (404, "The specified bucket does not exist.", "bucket"),
    ],
)
def test_what_the_user_can_put_right_on_gs_is_one_line(gs, status, message, named):
    bucket = Bucket("gs://bucket/x", patience=0)
    gs.refuse(status, message)
    for ask in (
        partial(bucket.create, "a", b"1"),
        partial(bucket.write, "a", b"1"),
        bucket.list_sizes,
    ):
        with pytest.raises(UserError, match=named) as told:
            ask()
        assert "\n" not in str(told.value)


def test_an_error_of_a_gs_server_is_asked_again(gs):
    """gcsfs itself asks six times."""
    gs.refuse(503, "Backend Error", times=7)
    assert Bucket("gs://bucket/x", patience=60).read("a") is None


def test_a_gs_server_that_stays_away_is_told_as_such(gs):
    gs.refuse(503, "Backend Error")
    with pytest.raises(TransientError):
        Bucket("gs://bucket/x", patience=0).read("a")


def test_the_first_content_that_comes_stays(gs):
    bucket = Bucket("gs://bucket/x", patience=0)
    assert bucket.create("a", b"first")
    assert not bucket.create("a", b"second")
    assert bucket.create("a", b"first"), "an answer was lost, and the request repeated"
    assert bucket.read("a") == b"first"


def test_an_object_that_could_not_be_read_is_not_taken_for_one_that_is_gone(gs):
    bucket = Bucket("gs://bucket/x", patience=0)
    bucket.write("a", b"1")
    assert bucket.read_all(["a", "b"]) == {"a": b"1"}
    gs.refuse(503, "Backend Error")
    with pytest.raises(TransientError):
        bucket.read_all(["a", "b"])
