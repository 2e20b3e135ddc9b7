"""Files that are there whole or not at all."""

import json
import signal
import subprocess
import sys

from amazon_electra.beam_jobs.core.files import link_path, write_json

KILLED = """
import os, signal, sys
from amazon_electra.beam_jobs.core.files import write_json

class Fatal(list):
    def __iter__(self):
        yield "x" * 100_000
        os.kill(os.getpid(), signal.SIGKILL)

write_json(sys.argv[1], {"begun": True, "rest": Fatal("ab")})
"""


def test_a_process_killed_in_the_middle_of_a_write_leaves_the_file_as_it_was(tmp_path):
    file, fresh = tmp_path / "manifest.json", tmp_path / "new.json"
    write_json(file, {"whole": 1})
    for path in (file, fresh):
        done = subprocess.run([sys.executable, "-c", KILLED, str(path)], capture_output=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
    assert json.loads(file.read_text()) == {"whole": 1}
    assert not fresh.exists()


def test_a_link_takes_no_room_and_replaces_what_was_there(tmp_path):
    source, folder = tmp_path / "model", tmp_path / "artifacts" / "model"
    (source / "parts").mkdir(parents=True)
    for words in ("first", "second"):
        write_json(source / "parts" / "weights", words)
        link_path(source, folder)
        assert json.loads((folder / "parts" / "weights").read_text()) == words
    assert (folder / "parts" / "weights").samefile(source / "parts" / "weights")
    link_path(source / "parts" / "weights", tmp_path / "other")
    assert (tmp_path / "other" / "weights").samefile(source / "parts" / "weights")
