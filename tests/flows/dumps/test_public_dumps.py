"""A fetched dump is whole, what has arrived is not fetched again, and nothing is written outside
the output folder, whatever the server does.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.flows.dumps.public_dumps import (
    ATTEMPTS,
    fetch_dump,
    find_address,
    read_releases,
)
from tests.flows.dumps.dump_server import (
    DUMP,
    Server,
    breaking_after,
    ignoring_range,
    redirecting,
    refusing,
    send,
    serving,
    whole,
)

NAME = "All_Beauty.json.gz"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("AMAZON_ELECTRA_PRIVATE_HOSTS", "127.0.0.1")
    with serving(Server()) as made:
        yield made


def fetch(server: Server, folder: Path, waits: list[float], sha256: str = "") -> None:
    path = fetch_dump(server.address, folder, sha256, waits.append)
    assert path.read_bytes() == DUMP
    assert list(folder.iterdir()) == [folder / NAME]


def test_the_releases_and_their_addresses() -> None:
    releases = {name: len(release["reviews"]) for name, release in read_releases().items()}
    assert releases == {"2018": 29, "2018-5core": 29, "2023": 34}
    assert find_address("2023/all_beauty") == (
        "hf://datasets/McAuley-Lab/Amazon-Reviews-2023/raw/review_categories/All_Beauty.jsonl"
    )
    assert find_address("2018-5core/AMAZON_FASHION").endswith(
        "/amazon_v2/categoryFilesSmall/AMAZON_FASHION_5.json.gz"
    )
    assert find_address("https://host/x.json.gz") == "https://host/x.json.gz"


@pytest.mark.parametrize("wrong", ["2018/Nonsense", "2017/All_Beauty", "s3://bucket/x.json.gz"])
def test_a_name_that_is_not_known_is_a_mistake(wrong: str) -> None:
    with pytest.raises(UserError):
        find_address(wrong)


def test_a_dump_that_is_there_is_not_fetched_again(server: Server, tmp_path: Path) -> None:
    for _ in range(2):
        fetch(server, tmp_path, waits := [], hashlib.sha256(DUMP).hexdigest())
        assert waits == []
    assert len(server.asked) == 1


def test_a_server_that_breaks_off_is_asked_for_the_rest(server: Server, tmp_path: Path) -> None:
    server.answers = [breaking_after(100_000), refusing(503), breaking_after(50_000), whole]
    fetch(server, tmp_path, waits := [])
    asked = [one.get("Range") for one in server.asked]
    assert asked == [None, "bytes=100000-", "bytes=100000-", "bytes=150000-"]
    assert server.asked[1]["If-Range"] == '"one"'
    assert waits == [1.0, 2.0, 1.0]


def test_what_has_arrived_is_kept_for_a_later_attempt(server: Server, tmp_path: Path) -> None:
    server.answers = [breaking_after(120_000), refusing(503)]
    with pytest.raises(TransientError, match=r"503.*120,000 bytes"):
        fetch_dump(server.address, tmp_path, sleep=(waits := []).append)
    assert not (tmp_path / NAME).exists()
    assert len(waits) == ATTEMPTS
    server.answers = [whole]
    fetch(server, tmp_path, [])
    assert server.asked[-1]["Range"] == "bytes=120000-"


def test_a_file_that_changed_is_fetched_from_its_beginning(server: Server, tmp_path: Path) -> None:
    def changed(handler: Any) -> None:
        server.etag = '"two"'
        whole(handler)

    def changed_but_ranged(handler: Any) -> None:
        server.etag = '"three"'
        handler.headers.replace_header("If-Range", '"three"')
        whole(handler)

    server.answers = [breaking_after(90), changed]
    fetch(server, tmp_path / "a", [])
    server.answers = [breaking_after(90), changed_but_ranged, whole]
    fetch(server, tmp_path / "b", [])
    assert "Range" not in server.asked[-1]
    server.answers = [breaking_after(90), ignoring_range]
    fetch(server, tmp_path / "c", [])


@pytest.mark.parametrize(
    ("body", "promised", "sha256"),
    [
        (DUMP, len(DUMP) - 500, ""),
        (b"<html>Please log in</html>", None, ""),
        (DUMP, len(DUMP) + 500, ""),
        (DUMP, None, "0" * 64),
    ],
)
def test_what_is_not_the_whole_dump_is_refused(
    server: Server, tmp_path: Path, body: bytes, promised: int | None, sha256: str
) -> None:
    server.answers = [lambda handler: send(handler, body, promised=promised)]
    with pytest.raises(JobFailed, match=NAME):
        fetch_dump(server.address, tmp_path, sha256, sleep=lambda _: None)
    assert not (tmp_path / NAME).exists()


def test_a_wrong_address_is_not_tried_again(server: Server, tmp_path: Path) -> None:
    server.answers = [refusing(404)]
    with pytest.raises(UserError, match="404"):
        fetch_dump(server.address, tmp_path)
    assert len(server.asked) == 1


def test_a_disk_without_room_is_told_and_not_tried_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.part").symlink_to("/dev/full")
    with pytest.raises(UserError, match="No space left on device"):
        fetch_dump(server.address, tmp_path)
    server.answers = [lambda handler: send(handler, DUMP, promised=1 << 60)]
    with pytest.raises(UserError, match="free"):
        fetch_dump(server.address, tmp_path / "other")


def test_two_do_not_fetch_one_file_at_once(server: Server, tmp_path: Path) -> None:
    told: list[str] = []

    def while_the_first_waits(handler: Any) -> None:
        with pytest.raises(UserError) as refused:
            fetch_dump(server.address, tmp_path)
        told.append(str(refused.value))
        whole(handler)

    server.answers = [while_the_first_waits]
    fetch(server, tmp_path, [])
    assert "another process is fetching it" in told[0]


def test_a_redirect_leads_only_where_an_address_may(server: Server, tmp_path: Path) -> None:
    with serving(Server("127.0.0.2")) as private:
        server.answers = [redirecting(private.address)]
        for address in (server.address, private.address):
            with pytest.raises(UserError, match=r"AMAZON_ELECTRA_PRIVATE_HOSTS=127.0.0.2"):
                fetch_dump(address, tmp_path)
        assert private.asked == []


def test_a_dump_of_the_hub_lies_under_its_name(server: Server, tmp_path: Path) -> None:
    about = {"X-Repo-Commit": "c" * 40}
    server.answers = [lambda handler: send(handler, DUMP, **about)]
    endpoint = server.address.partition("/some")[0]
    environment = os.environ | {"HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "0"}
    command = f"-m amazon_electra.flows.cli.main dumps fetch 2023/All_Beauty --output {tmp_path}"
    done = subprocess.run(
        [sys.executable, *command.split()], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    path = Path(json.loads(done.stdout)["path"])
    assert (path.name, path.read_bytes()) == ("All_Beauty.jsonl", DUMP)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/..%2f..%2fname.gz", "name.gz"),
        ("%2ftmp%2fname.gz", "name.gz"),
        ("a/b/..%2f..", None),
        ("a/..%5cname.gz", None),
        ("a/name%00.gz", None),
    ],
)
def test_a_dump_is_written_only_inside_the_output_folder(
    server: Server, tmp_path: Path, path: str, name: str | None
) -> None:
    address = server.address.replace("some/All_Beauty.json.gz", path)
    output = tmp_path / "deep" / "output"
    if name:
        assert fetch_dump(address, output) == output / name
    else:
        with pytest.raises(UserError, match="address"):
            fetch_dump(address, output)
    written = {file for file in tmp_path.rglob("*") if file.is_file()}
    assert written == ({output / name} if name else set())
