"""What a dry run suggests works as it is typed."""

import json
import re
import shlex

import pytest

from amazon_electra.flows.cli.main import run_words


def table(header, row, rows=300):
    return "\n".join([header, *map(row, range(rows)), ""]).encode()


def text(i):
    return f"the kettle number {i} boils {i * 7} litres"


def stars(i):
    return f"{text(i)},{i % 5 + 1}"


LISTS = {
    name: [{"body": f"{name} {text(i)}", "stars": i % 5 + 1} for i in range(200)]
    for name in ("shop", "app")
}
DUMPS = {
    "six steps": table("text,rating", lambda i: f"{text(i)},{i % 6 + 1}"),
    "nps": table("text,score", lambda i: f"{text(i)},{i % 11}"),
    "two lists": json.dumps(LISTS).encode(),
    "nested": table("", lambda i: json.dumps({"_source": {"body": text(i), "stars": i % 5 + 1}})),
    "mojibake": table("text,stars", lambda i: f"donâ€™t buy {stars(i)}"),
    "cyrillic": table("text,stars", lambda i: f"Чайник кипит {stars(i)}").decode().encode("cp1251"),
}
FILES = {"two lists": "d.json", "nested": "d.json"}


def dry_run(capsys, folder, file, *options):
    """Return the exit code and what was printed, but for the settings and first texts."""
    words = ["run", "--dry-run", "--store", str(folder / "store"), "--dump", str(file), *options]
    code, said = run_words(words), capsys.readouterr()
    lines = [line for line in said.out.splitlines() if not line.startswith(("  ", "{", "}"))]
    return code, "\n".join([*lines, said.err])


NAMED = {
    "two lists": ("--dump.records", "app"),
    "cyrillic": ("--dump.encoding", "cp1251"),
}
"""Options that begin the line of a mistake, which names values for them."""


def list_suggestions(said):
    """Return the words of options with values that lines name, as a shell has them."""
    found = {}
    for option in re.finditer(r"(--[a-z][a-z._-]*|\bdump\.[a-z_]+)([ =])", said):
        words = shlex.shlex(said[option.end() :].replace("`", " "), posix=True)
        words.whitespace_split, words.commenters = True, ""
        name, value = option[1], words.get_token().rstrip(",;)")
        name = name if name.startswith("--") else f"--{name}"
        if value.rpartition("=")[2] != "NAME" and not value.endswith(":"):
            found[(f"{name}={value}",) if option[2] == "=" else (name, value)] = True
    return list(found)


@pytest.mark.parametrize("what", DUMPS)
def test_what_a_dry_run_suggests_works_as_typed(tmp_path, capsys, what):
    file = tmp_path / FILES.get(what, "d.csv")
    file.write_bytes(DUMPS[what])
    code, said = dry_run(capsys, tmp_path, file)
    suggested = [NAMED[what]] if what in NAMED else list_suggestions(said)
    assert suggested, said
    assert all(word.removeprefix("--") in said for words in suggested for word in words)
    for suggestion in suggested:
        code, after = dry_run(capsys, tmp_path, file, *suggestion)
        answer = " ".join(suggestion)
        assert code == 0, (answer, after)
        assert answer.removeprefix("--") not in after, after
