"""Fetching dumps from a server on this machine that breaks off, refuses, ignores Range and lies
about lengths.
"""

import gzip
import hashlib
import json
import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from beam_jobs.job.errors import UserError
from flows.cli import main
from flows.cli.dumps_command import find_address
from flows.dumps import download
from flows.dumps.catalog import RELEASES
from flows.dumps.download import Transfer, TransferFailed, fetch_file

TEXT = random.Random(0).randbytes(300_000)
DUMP = gzip.compress(TEXT, mtime=0)


class Server:
    """Answers each request with the next of `answers`, the last one again and again; keeps what it
    was asked.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.answers: list[Callable[[Any], None]] = [whole]
        self.asked: list[dict[str, str]] = []
        self.etag = '"one"'
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(dict(self.headers))
                answer = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                answer(self)
                self.close_connection = True

            do_HEAD = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer((host, 0), Handler)
        self.http.etag = lambda: outer.etag  # type: ignore[attr-defined]
        self.address = f"http://{host}:{self.http.server_port}/some/All_Beauty.json.gz"


def send(
    handler: Any,
    body: bytes,
    status: int = 200,
    promised: int | None = None,
    ranged: bool = True,
    **headers: str,
) -> None:
    """Serves `body` as asked; `promised` replaces the honest length of what follows."""
    start = 0
    asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
    condition = handler.headers.get("If-Range")
    if asked and ranged and condition in (None, handler.server.etag()):
        start, status = int(asked[1]), 206
        if start >= len(body):
            handler.send_response(416)
            handler.end_headers()
            return
        headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body) - start if promised is None else promised))
    handler.send_header("ETag", handler.server.etag())
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(
        body[start:]
        if promised is None or promised >= len(body) - start
        else body[start:][:promised]
    )


def whole(handler: Any) -> None:
    send(handler, DUMP)


def redirecting(address: str) -> Callable[[Any], None]:
    return refusing(302, Location=address)


def breaking_after(received: int) -> Callable[[Any], None]:
    """Promises the rest of the file and sends so many bytes of it."""

    def answer(handler: Any) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        handler.send_response(206 if asked else 200)
        if asked:
            handler.send_header("Content-Range", f"bytes {start}-{len(DUMP) - 1}/{len(DUMP)}")
        handler.send_header("Content-Length", str(len(DUMP) - start))
        handler.send_header("ETag", handler.server.etag())
        handler.end_headers()
        handler.wfile.write(DUMP[start : start + received])

    return answer


def refusing(status: int, **headers: str) -> Callable[[Any], None]:
    def answer(handler: Any) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def ignoring_range(handler: Any) -> None:
    send(handler, DUMP, ranged=False)


@contextmanager
def serving(made: Server) -> Iterator[Server]:
    thread = threading.Thread(target=made.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.http.shutdown()
    made.http.server_close()
    thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Server()) as made:
        yield made


@pytest.fixture
def private_server() -> Iterator[Server]:
    """A server of a host that no setting names."""
    with serving(Server("127.0.0.2")) as made:
        yield made


@pytest.fixture(autouse=True)
def _allow_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMAZON_ELECTRA_PRIVATE_HOSTS", "127.0.0.1")


@pytest.fixture
def waits() -> list[float]:
    return []


def order(server: Server, folder: Path, waits: list[float], **settings: Any) -> Transfer:
    return Transfer(server.address, folder / "All_Beauty.json.gz", sleep=waits.append, **settings)


def only_the_dump_is_there(folder: Path) -> bool:
    return [path.name for path in folder.iterdir()] == ["All_Beauty.json.gz"] and (
        folder / "All_Beauty.json.gz"
    ).read_bytes() == DUMP


def test_a_good_server(server: Server, tmp_path: Path, waits: list[float]) -> None:
    result = fetch_file(
        order(server, tmp_path, waits, sha256=hashlib.sha256(DUMP).hexdigest(), size=len(DUMP))
    )
    assert only_the_dump_is_there(tmp_path)
    assert result["bytes"] == result["received"] == len(DUMP)
    assert not waits
    fetch_file(order(server, tmp_path, waits))
    assert len(server.asked) == 1, "a dump that is there is not fetched again"


def test_a_server_that_breaks_off_is_asked_for_the_rest(
    server: Server, tmp_path: Path, waits: list[float]
) -> None:
    server.answers = [breaking_after(100_000), breaking_after(50_000), whole]
    fetch_file(order(server, tmp_path, waits))
    assert only_the_dump_is_there(tmp_path)
    assert [asked.get("Range") for asked in server.asked] == [
        None,
        "bytes=100000-",
        "bytes=150000-",
    ]
    assert server.asked[1]["If-Range"] == '"one"'


def test_a_later_process_continues(server: Server, tmp_path: Path, waits: list[float]) -> None:
    server.answers = [breaking_after(120_000), refusing(503)]
    with pytest.raises(TransferFailed, match=r"503.*120,000 bytes are kept"):
        fetch_file(order(server, tmp_path, waits, attempts=2))
    assert not (tmp_path / "All_Beauty.json.gz").exists()
    server.answers = [whole]
    result = fetch_file(order(server, tmp_path, waits))
    assert result["resumed_from"] == 120_000
    assert server.asked[-1]["Range"] == "bytes=120000-"
    assert only_the_dump_is_there(tmp_path)


def test_a_part_of_another_address_is_not_continued(
    server: Server, tmp_path: Path, waits: list[float]
) -> None:
    (tmp_path / "All_Beauty.json.gz.part").write_bytes(b"something else")
    (tmp_path / "All_Beauty.json.gz.part.json").write_text(
        json.dumps({"address": "http://elsewhere/x.gz"})
    )
    fetch_file(order(server, tmp_path, waits))
    assert "Range" not in server.asked[0]
    assert only_the_dump_is_there(tmp_path)


def test_refusals_are_waited_out_longer_each_time(
    server: Server, tmp_path: Path, waits: list[float]
) -> None:
    server.answers = [refusing(503), refusing(502), refusing(429), whole]
    fetch_file(order(server, tmp_path, waits))
    assert waits == sorted(waits)
    assert waits[-1] > waits[0]
    assert only_the_dump_is_there(tmp_path)


def test_the_server_says_how_long_to_wait(
    server: Server, tmp_path: Path, waits: list[float]
) -> None:
    server.answers = [refusing(503, Retry_After="17"), refusing(503, Retry_After="86400"), whole]
    fetch_file(order(server, tmp_path, waits))
    assert waits == [17.0, download.LONGEST_WAIT]


def test_it_gives_up_in_the_end(server: Server, tmp_path: Path, waits: list[float]) -> None:
    server.answers = [refusing(503)]
    with pytest.raises(TransferFailed, match="gave up after 4 attempts"):
        fetch_file(order(server, tmp_path, waits, attempts=4))
    assert len(server.asked) == 4
    assert not list(tmp_path.iterdir())


def test_a_server_that_ignores_range_is_read_from_the_start(
    server: Server, tmp_path: Path, waits: list[float]
) -> None:
    server.answers = [breaking_after(100_000), ignoring_range]
    fetch_file(order(server, tmp_path, waits))
    assert only_the_dump_is_there(tmp_path)


def test_a_server_that_ignores_range_and_always_breaks_off_is_given_up(
    server: Server, tmp_path: Path, waits: list[float]
) -> None:
    server.answers = [lambda handler: send(handler, DUMP[:1000], promised=len(DUMP), ranged=False)]
    with pytest.raises(TransferFailed, match=r"broke off after 1,000 of"):
        fetch_file(order(server, tmp_path, waits, attempts=3))
    assert len(server.asked) == 4


def test_a_file_that_changes_on_the_server_is_begun_again(
    server: Server, tmp_path: Path, waits: list[float]
) -> None:
    def changed(handler: Any) -> None:
        server.etag = '"two"'
        whole(handler)

    server.answers = [breaking_after(100_000), changed, whole]
    fetch_file(order(server, tmp_path, waits))
    assert only_the_dump_is_there(tmp_path)


def test_a_changed_file_is_noticed_even_if_the_server_ignores_the_condition(
    server: Server, tmp_path: Path, waits: list[float]
) -> None:
    def changed_but_ranged(handler: Any) -> None:
        server.etag = '"two"'
        handler.headers.replace_header("If-Range", '"two"')
        whole(handler)

    server.answers = [breaking_after(100_000), changed_but_ranged, whole]
    fetch_file(order(server, tmp_path, waits))
    assert "Range" not in server.asked[2]
    assert only_the_dump_is_there(tmp_path)


def test_a_length_that_is_too_long_is_not_believed(
    server: Server, tmp_path: Path, waits: list[float]
) -> None:
    server.answers = [lambda handler: send(handler, DUMP, promised=len(DUMP) + 500)]
    with pytest.raises(TransferFailed, match="broke off"):
        fetch_file(order(server, tmp_path, waits, attempts=2))
    assert not (tmp_path / "All_Beauty.json.gz").exists()


def test_a_length_that_is_too_short_is_found_out(
    server: Server, tmp_path: Path, waits: list[float]
) -> None:
    server.answers = [lambda handler: send(handler, DUMP, promised=len(DUMP) - 500)]
    with pytest.raises(TransferFailed, match="not a whole gzip file"):
        fetch_file(order(server, tmp_path, waits))
    assert not list(tmp_path.iterdir())


def test_a_page_instead_of_a_dump_is_refused(
    server: Server, tmp_path: Path, waits: list[float]
) -> None:
    server.answers = [lambda handler: send(handler, b"<html>Please log in</html>")]
    with pytest.raises(TransferFailed, match="not a whole gzip file"):
        fetch_file(order(server, tmp_path, waits))


def test_a_redirect_is_followed_only_where_an_address_may_lead(
    server: Server,
    private_server: Server,
    tmp_path: Path,
    waits: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.answers = [redirecting(private_server.address)]
    with pytest.raises(UserError, match=r"127\.0\.0\.2.*AMAZON_ELECTRA_PRIVATE_HOSTS=127\.0\.0\.2"):
        fetch_file(order(server, tmp_path, waits))
    with pytest.raises(UserError, match="AMAZON_ELECTRA_PRIVATE_HOSTS=127"):
        fetch_file(order(private_server, tmp_path, waits))
    server.answers = [redirecting("ftp://127.0.0.1/All_Beauty.json.gz")]
    with pytest.raises(UserError, match="which is no web address"):
        fetch_file(order(server, tmp_path, waits))
    assert (private_server.asked, waits) == ([], [])
    monkeypatch.setenv("AMAZON_ELECTRA_PRIVATE_HOSTS", "127.0.0.1,127.0.0.2")
    server.answers = [redirecting(private_server.address)]
    fetch_file(order(server, tmp_path, waits))
    assert only_the_dump_is_there(tmp_path)


def test_the_published_checksum_and_size_are_demanded(
    server: Server, tmp_path: Path, waits: list[float]
) -> None:
    with pytest.raises(TransferFailed, match="SHA-256"):
        fetch_file(order(server, tmp_path, waits, sha256="0" * 64))
    with pytest.raises(TransferFailed, match="published are 7"):
        fetch_file(order(server, tmp_path, waits, size=7))
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_is_held_to_the_published_size_too(
    server: Server, tmp_path: Path, waits: list[float]
) -> None:
    fetch_file(order(server, tmp_path, waits, size=len(DUMP)))
    with pytest.raises(TransferFailed, match="published are 7; remove it"):
        fetch_file(order(server, tmp_path, waits, size=7))
    assert fetch_file(order(server, tmp_path, waits, size=len(DUMP)))["received"] == 0


def test_more_than_was_announced_is_not_taken(
    server: Server, tmp_path: Path, waits: list[float]
) -> None:
    def sending_more(handler: Any) -> None:
        at = int(handler.headers["Range"].removeprefix("bytes=").rstrip("-"))
        rest = DUMP[at:] + b"more"
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {at}-{len(DUMP) - 1}/{len(DUMP)}")
        handler.send_header("Content-Length", str(len(rest)))
        handler.end_headers()
        handler.wfile.write(rest)

    server.answers = [breaking_after(100_000), sending_more, whole]
    fetch_file(order(server, tmp_path, waits))
    assert "Range" not in server.asked[2]
    assert only_the_dump_is_there(tmp_path)


def test_a_full_disk_is_told_as_such_and_not_tried_again(
    server: Server, tmp_path: Path, waits: list[float]
) -> None:
    (tmp_path / "All_Beauty.json.gz.part").symlink_to("/dev/full")
    (tmp_path / "All_Beauty.json.gz.part.json").write_text(json.dumps({"address": server.address}))
    with pytest.raises(
        UserError, match=r"json\.gz\.part: No space left on device; what arrived is kept"
    ):
        fetch_file(order(server, tmp_path, waits))
    assert waits == []


def test_two_do_not_fetch_one_file_at_once(
    server: Server, tmp_path: Path, waits: list[float]
) -> None:
    second: list[str] = []

    def while_the_first_waits(handler: Any) -> None:
        with pytest.raises(UserError, match="another process is fetching it") as told:
            fetch_file(order(server, tmp_path, waits))
        second.append(str(told.value))
        whole(handler)

    server.answers = [while_the_first_waits]
    fetch_file(order(server, tmp_path, waits))
    assert len(second) == 1
    assert only_the_dump_is_there(tmp_path)


def test_a_wrong_address_is_the_users_mistake_and_not_tried_again(
    server: Server, tmp_path: Path, waits: list[float]
) -> None:
    server.answers = [refusing(404)]
    with pytest.raises(UserError, match="404"):
        fetch_file(order(server, tmp_path, waits))
    assert len(server.asked) == 1


def test_no_server_at_all(
    tmp_path: Path, waits: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = Transfer("http://127.0.0.1:9/x.gz", tmp_path / "x.gz", attempts=3, sleep=waits.append)
    with pytest.raises(TransferFailed, match="connection failed"):
        fetch_file(nowhere)
    retries = [line for line in capsys.readouterr().err.splitlines() if "attempt" in line]
    assert [line.rpartition("; ")[2] for line in retries] == [
        "attempt 2 of 3 in 1 s",
        "attempt 3 of 3 in 2 s",
    ], "every retry is told, and at once"


def test_a_whole_part_needs_only_its_name(
    server: Server, tmp_path: Path, waits: list[float]
) -> None:
    (tmp_path / "All_Beauty.json.gz.part").write_bytes(DUMP)
    note = {"address": server.address, "etag": '"one"', "size": len(DUMP)}
    (tmp_path / "All_Beauty.json.gz.part.json").write_text(json.dumps(note))
    result = fetch_file(order(server, tmp_path, waits))
    assert result["received"] == 0
    assert only_the_dump_is_there(tmp_path)


def test_a_store_is_read_through_fsspec_from_where_it_was(
    tmp_path: Path, waits: list[float]
) -> None:
    import fsspec

    store = fsspec.filesystem("memory")
    store.pipe("/bucket/All_Beauty.json.gz", DUMP)
    address = "memory://bucket/All_Beauty.json.gz"
    target = tmp_path / "All_Beauty.json.gz"
    target.with_name("All_Beauty.json.gz.part").write_bytes(DUMP[:77_000])
    note = {"address": address, "size": len(DUMP)}
    target.with_name("All_Beauty.json.gz.part.json").write_text(json.dumps(note))
    result = fetch_file(Transfer(address, target, sleep=waits.append))
    assert result["resumed_from"] == 77_000
    assert only_the_dump_is_there(tmp_path)


def test_names_lead_to_published_addresses() -> None:
    assert find_address("2023/all_beauty") == (
        "https://mcauleylab.ucsd.edu/public_datasets/data/amazon_2023/raw/review_categories/All_Beauty.jsonl.gz"
    )
    assert find_address("2018-5core/AMAZON_FASHION").endswith(
        "/amazon_v2/categoryFilesSmall/AMAZON_FASHION_5.json.gz"
    )
    assert find_address("s3://bucket/x.json.gz") == "s3://bucket/x.json.gz"
    for wrong in (
        "2018/Nonsense",
        "2019/Books",
        "Books",
        "https://host/",
        "ftp://host/x",
        "a::s3://b/x",
    ):
        with pytest.raises(UserError):
            find_address(wrong)


def test_the_releases_are_complete() -> None:
    assert {name: len(release.reviews) for name, release in RELEASES.items()} == {
        "2018": 29,
        "2018-5core": 29,
        "2023": 34,
    }


def test_the_commands(
    server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(SystemExit) as listed:
        main.main(["dumps", "list", "--release", "2018"])
    assert not listed.value.code
    assert "2018/All_Beauty" in capsys.readouterr().out
    with pytest.raises(SystemExit) as fetched:
        main.main(["dumps", "fetch", server.address, "--output", str(tmp_path / "dumps")])
    assert not fetched.value.code
    assert Path(json.loads(capsys.readouterr().out)["path"]).read_bytes() == DUMP
    with pytest.raises(SystemExit) as refused:
        main.main(["dumps", "fetch", "2018/Nonsense"])
    assert refused.value.code == 2
    assert "dumps list" in capsys.readouterr().err
    server.answers = [lambda handler: send(handler, b"<html>")]
    with pytest.raises(SystemExit) as failed:
        main.main(["dumps", "fetch", server.address, "--output", str(tmp_path / "others")])
    assert failed.value.code == 1


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/..%2f..%2fname.gz", "name.gz"),
        ("%2ftmp%2fname.gz", "name.gz"),
        ("a/name%20one.gz", "name one.gz"),
        ("a/b/..%2f..", None),
        ("a/%2e%2e", None),
        ("a/.", None),
        ("a/..%5cname.gz", None),
        ("a/name%00.gz", None),
        ("", None),
    ],
)
def test_a_dump_is_written_only_inside_the_output_folder(
    server: Server, tmp_path: Path, capsys: Any, path: str, name: str | None
) -> None:
    output = tmp_path / "deep" / "output"
    address = server.address.replace("some/All_Beauty.json.gz", path)
    words = ["dumps", "fetch", address, "--output", str(output)]
    code = main.attempt(main.build_parser().parse_args(words))
    written = {file for file in tmp_path.rglob("*") if file.is_file()}
    if name is None:
        assert (code, written) == (2, set())
        assert "the address must end in a file's name" in capsys.readouterr().err
    else:
        assert (code, written) == (0, {output / name})
