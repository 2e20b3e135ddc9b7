"""Refusals are waited out longer each time; a dump that does not come, or is not the published one,
is refused with the reason.
"""

import json
from pathlib import Path

import pytest

from beam_jobs.job.errors import UserError
from flows.dumps import download
from flows.dumps.download import Transfer, TransferFailed, fetch_file
from tests.flows.dumps.dump_server import (
    DUMP,
    Server,
    only_the_dump_is_there,
    order,
    redirecting,
    refusing,
    send,
    whole,
)

pytestmark = pytest.mark.usefixtures("this_machine_is_allowed")


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


def test_a_server_that_ignores_range_and_always_breaks_off_is_given_up(
    server: Server, tmp_path: Path, waits: list[float]
) -> None:
    server.answers = [lambda handler: send(handler, DUMP[:1000], promised=len(DUMP), ranged=False)]
    with pytest.raises(TransferFailed, match=r"broke off after 1,000 of"):
        fetch_file(order(server, tmp_path, waits, attempts=3))
    assert len(server.asked) == 4


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
