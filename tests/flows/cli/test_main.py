"""How a command ends."""

import os

import pytest

from amazon_electra.beam_jobs.core.terminal import escape_controls
from amazon_electra.flows.cli import main


@pytest.mark.parametrize("words", [["run", "--dump", "sample:20"], ["runs"], ["score"]])
def test_a_word_that_is_not_utf_8_is_refused_in_one_line(tmp_path, capsys, words):
    store = tmp_path / os.fsdecode(b"caf\xe9")
    assert main.run_words([*words, "--store", str(store)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert r"caf\udce9" in line
    assert not list(tmp_path.iterdir())


def test_columns_and_file_names_are_shown_by_the_command(tmp_path, capsys):
    """Names of columns in a mistake; the name of a file in what a dry run prints."""
    hostile = "a\x1b]52;c;ZXZpbA==\x07b\x9b2Jc\u202etxt\u2066d"
    bad, dump = tmp_path / "bad.csv", tmp_path / f"{hostile}.csv"
    bad.write_text(f'"{hostile}",b\nx,1\ny,2\n', encoding="utf-8")
    rows = [f"a lamp of {i} watts,{i % 5 + 1}" for i in range(400)]
    dump.write_text("\n".join(["text,stars", *rows]), encoding="utf-8")
    for path, code in ((bad, 2), (dump, 0)):
        words = ["run", "--dump", str(path), "--store", str(tmp_path / "store"), "--dry-run"]
        assert main.run_words(words) == code
        shown = "".join(capsys.readouterr())
        assert escape_controls(hostile) in shown
        assert not {"\x1b", "\x9b", "\u202e", "\r"} & set(shown)


@pytest.mark.parametrize("command", main.COMMANDS)
def test_each_command_has_options_and_prints_them(command, capsys):
    assert main.run_words([command, "--help"]) == 0
    assert f"amazon-electra {command}" in capsys.readouterr().out
