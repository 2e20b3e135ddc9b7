"""Tests of the hosts that other tests start."""

import os
import subprocess

import pytest

from tests.hosts import open_folders

OTHER_USER = "64003"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it mounts and becomes another user")
def test_another_user_finds_in_a_closed_folder_what_it_needs_and_nothing_else(tmp_path):
    closed = tmp_path / "mktemp's"
    for name in ("project", "secrets"):
        (closed / name).mkdir(parents=True)
        (closed / name / "file.txt").write_text(name)
    closed.chmod(0o700)
    become = f"setpriv --reuid {OTHER_USER} --regid {OTHER_USER} --clear-groups"

    def list_as_other(view):
        script = f'{view}exec {become} ls "$@"'
        paths = [str(closed), str(closed / "project")]
        words = ["unshare", "--mount", "sh", "-ec", script, "sh", "-m", *paths]
        return subprocess.run(words, capture_output=True, text=True)

    assert list_as_other("").returncode != 0
    listed = list_as_other(open_folders([closed / "project"]))
    assert listed.stdout == f"{closed}:\nproject\n\n{closed}/project:\nfile.txt\n", listed.stderr
    assert sorted(path.name for path in closed.iterdir()) == ["project", "secrets"]
