"""Environments of other tools are made once, and one that cannot be made is named with a reason."""

import subprocess

import pytest

from tests.bench.peers.environments import INSTALLED, NoEnvironment, make_environment


def test_an_environment_is_made_once_and_holds_nothing_of_ours(tmp_path):
    python = make_environment("bare", [], tmp_path)
    (tmp_path / "bare" / "mark").touch()
    assert make_environment("bare", [], tmp_path) == python
    assert (tmp_path / "bare" / "mark").exists()
    ours = subprocess.run([python, "-c", "import apache_beam"], capture_output=True, cwd=tmp_path)
    assert b"ModuleNotFoundError" in ours.stderr


def test_an_environment_that_cannot_be_made_says_why_and_is_not_taken_for_whole(tmp_path):
    for _ in range(2):
        with pytest.raises(NoEnvironment, match="no-such-package"):
            make_environment("absent", ["--no-index", "no-such-package"], tmp_path)
    assert not (tmp_path / "absent" / INSTALLED).exists()
