"""What messages suggest works as it is typed: an option of a dry run, a command, a setting."""

import ast
import json
import re
import shlex
from pathlib import Path

import pytest

from amazon_electra.beam_jobs.core.command_line import list_fields
from amazon_electra.flows.cli.main import build_app, run_words
from amazon_electra.flows.configuration.form import Parameters, Scoring

ROOT = Path(__file__).parents[3]


def table(header, row, rows=300):
    return "\n".join([header, *map(row, range(rows)), ""]).encode()


def text(i):
    return f"the kettle number {i} boils {i * 7} litres"


def stars(i):
    return f"{text(i)},{i % 5 + 1}"


EXCELLENT = ("1 - Excellent", "2 - Good", "6 - Bad")
SPELLINGS = ("Yes", "yes", "no", "n/a")
LISTS = {
    name: [{"body": f"{name} {text(i)}", "stars": i % 5 + 1} for i in range(200)]
    for name in ("shop", "app")
}
DUMPS = {
    "a text by its length": table("Q1,Q3", lambda i: f"{i % 5 + 1},{text(i)}"),
    "six steps": table("text,rating", lambda i: f"{text(i)},{i % 6 + 1}"),
    "one is excellent": table("text,rating", lambda i: f"{text(i)},{EXCELLENT[i % 3]}"),
    "nps": table("text,score", lambda i: f"{text(i)},{i % 11}"),
    "classes": table("text,why returned", lambda i: f"{text(i)},{('late', 'too small')[i % 2]}"),
    "spellings": table("text,ok", lambda i: f"{text(i)},{SPELLINGS[i % 4]}"),
    "labels of fasttext": table("", lambda i: f"__label__{('pos', 'neg')[i % 2]} {text(i)}")[1:],
    "two lists": json.dumps(LISTS).encode(),
    "nested": table("", lambda i: json.dumps({"_source": {"body": text(i), "stars": i % 5 + 1}})),
    "mojibake": table("text,stars", lambda i: f"donâ€™t buy {stars(i)}"),
    "cyrillic": table("text,stars", lambda i: f"Чайник кипит {stars(i)}").decode().encode("cp1251"),
}
FILES = {"labels of fasttext": "d.txt", "two lists": "d.json", "nested": "d.json"}
OPTIONS = {"spellings": ("--label", "ok")}


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
    file, options = tmp_path / FILES.get(what, "d.csv"), OPTIONS.get(what, ())
    file.write_bytes(DUMPS[what])
    code, said = dry_run(capsys, tmp_path, file, *options)
    suggested = [NAMED[what]] if what in NAMED else list_suggestions(said)
    assert suggested, said
    assert all(word.removeprefix("--") in said for words in suggested for word in words)
    for suggestion in suggested:
        code, after = dry_run(capsys, tmp_path, file, *options, *suggestion)
        answer = " ".join(suggestion)
        is_next = "no stars, so there are no examples" in after  # and what to do about that
        assert code == 0 or is_next, (answer, after)
        assert answer.removeprefix("--") not in after, after


def list_strings():
    """Yield the strings of the program, with {} for what is filled in."""
    for folder in ("beam_jobs", "flows", "model"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = [p.value if isinstance(p, ast.Constant) else "{}" for p in node.values]
                    yield path.name, "".join(parts)
                elif isinstance(node, ast.Constant):
                    yield path.name, str(node.value)


COMMANDS = sorted(
    {
        (name, found[1])
        for name, string in list_strings()
        for found in re.finditer(r"`(amazon-electra [a-z][^`]*)`", string)
    }
)


@pytest.mark.parametrize(("file", "command"), COMMANDS)
def test_a_command_in_a_message_is_one(file, command):
    words = shlex.split(command.replace("{}", "x"))[1:]
    words = [word for word in words if word != "…"]
    build_app().parse_args(words, exit_on_error=False, print_error=False)


SETTINGS = sorted(
    {
        (name, found[1], found[2])
        for name, string in list_strings()
        for found in re.finditer(r"`([a-z_]+\.[a-z_]+) ([^`{}]+)`", string)
    }
)


@pytest.mark.parametrize(("file", "field", "value"), SETTINGS)
def test_a_setting_in_a_message_is_one_of_a_form(file, field, value):
    fields = list_fields(Parameters) | list_fields(Scoring)
    assert field in fields
