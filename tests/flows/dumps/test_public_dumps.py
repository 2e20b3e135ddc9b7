"""Public dumps are listed with the command that fetches one."""

import shlex
from urllib.parse import urlsplit

import pytest

from amazon_electra.flows.cli.main import main
from amazon_electra.flows.dumps.public_dumps import read_releases, spell_command


def test_each_release_has_categories_and_a_command():
    for release in read_releases().values():
        for category in release["reviews"]:
            program, *words = shlex.split(spell_command(release["address"], category))
            named = words[-1] if program == "curl" else words[2]
            assert category in named
            assert program == "hf" or urlsplit(named).scheme == "https"


def test_a_release_is_listed_with_its_command(capsys):
    with pytest.raises(SystemExit) as end:
        main(["dumps", "list", "--release", "2023"])
    listed = capsys.readouterr().out
    assert end.value.code == 0
    assert "hf download McAuley-Lab/Amazon-Reviews-2023 raw/review_categories/" in listed
    assert "2018" not in listed
