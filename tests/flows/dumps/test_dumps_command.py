"""`amazon-electra dumps` knows the addresses of published dumps, fetches one, and writes nothing
outside the output folder.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from beam_jobs.job.errors import UserError
from flows.cli import main
from flows.cli.dumps_command import find_address
from flows.dumps.catalog import RELEASES
from tests.flows.dumps.dump_server import DUMP, Server, send

pytestmark = pytest.mark.usefixtures("this_machine_is_allowed")


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
