"""A fetched dump is whole, and what has arrived of it is not fetched again, though the server
breaks off, ignores Range or has another file by then.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from beam_jobs.job.errors import UserError
from flows.dumps.download import Transfer, TransferFailed, fetch_file
from tests.flows.dumps.dump_server import (
    DUMP,
    Server,
    breaking_after,
    ignoring_range,
    only_the_dump_is_there,
    order,
    refusing,
    whole,
)

pytestmark = pytest.mark.usefixtures("this_machine_is_allowed")


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


def test_a_server_that_ignores_range_is_read_from_the_start(
    server: Server, tmp_path: Path, waits: list[float]
) -> None:
    server.answers = [breaking_after(100_000), ignoring_range]
    fetch_file(order(server, tmp_path, waits))
    assert only_the_dump_is_there(tmp_path)


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
