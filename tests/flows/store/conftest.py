"""One real S3 server for the tests of stores that lie in a bucket; every test has its own folder
there, and as many hosts as it wants. Of gs:// a small server for each test.
"""

from types import SimpleNamespace
from uuid import uuid4

import fsspec
import pytest

from amazon_electra.flows.store.store import Store
from tests.gcs_server import serve_gcs
from tests.s3_server import BUCKET, serve_s3


@pytest.fixture(scope="session")
def s3(tmp_path_factory):
    with serve_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def as_user(s3, monkeypatch):
    """Makes this process another user of the server; at first it is the owner."""
    from s3fs import S3FileSystem

    def change(user: str, **more: str) -> None:
        for name, value in {**s3.environment(user), **more}.items():
            monkeypatch.setenv(name, value)
        S3FileSystem.clear_instance_cache()

    change("owner")
    yield change
    S3FileSystem.clear_instance_cache()


@pytest.fixture
def address(request):
    """An address that nothing lies below: in s3://, or in gs:// where a test asks for that."""
    if getattr(request, "param", "s3") == "gs":
        request.getfixturevalue("gs")
        return "gs://bucket/store"
    request.getfixturevalue("as_user")
    return f"s3://{BUCKET}/{uuid4().hex}"


@pytest.fixture
def gs(monkeypatch):
    """A server of gs:// that this process reaches; gcsfs does not sleep between its own attempts,
    half a minute, and asks nobody what kind of bucket it has.
    """
    from gcsfs.core import GCSFileSystem

    async def go_on(seconds):
        pass

    monkeypatch.setattr("gcsfs.retry.asyncio", SimpleNamespace(sleep=go_on))
    fsspec.register_implementation("gs", GCSFileSystem, clobber=True)
    with serve_gcs() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        GCSFileSystem.clear_instance_cache()
        yield server
    GCSFileSystem.clear_instance_cache()


@pytest.fixture
def open_host(address, tmp_path, monkeypatch):
    """Opens the store as the host of a name sees it: with a folder of its own."""
    monkeypatch.setattr("amazon_electra.flows.store.bucket.LOOK_SECONDS", 0.1)
    return lambda name: Store(address, root=tmp_path / name)
