"""Options and `--set` texts: read from the same fields, with mistakes of one line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from beam_jobs.job.errors import UserError
from beam_jobs.job.settings import (
    check_settings,
    parse_value,
    read_known_options,
    read_options,
    replace_settings,
    setting,
)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where it is."""

    folder: Path = setting("folder of the result")


@dataclass(frozen=True, kw_only=True)
class Options(Place):
    """What a job may be told."""

    max_length: int = setting("tokens", 128, ge=16, le=512)
    rate: float = setting("learning rate", 0.1, gt=0, lt=1)
    rates: tuple[float, ...] = setting("several", (), gt=0)
    kind: Literal["a", "b"] | None = setting("one of two", None)
    most: int | None = setting("examples at most", 9, ge=2)
    lower_case: bool = setting("fold case", True)
    dry_run: bool = setting("plan only", False, is_flag=True)
    settings: tuple[str, ...] = setting("any other", (), option="--set")
    input: tuple[tuple[str, ...], ...] = setting("files", ())

    def __post_init__(self) -> None:
        check_settings(self)


def read(*words):
    return read_options(Options, ["--folder", "out", *words], "job", "Does something.")


def test_a_word_becomes_what_its_field_is():
    given = read(
        *[
            "--max-length",
            "64",
            "--rates",
            "1e-3",
            "2e-3",
            "--kind",
            "b",
            "--most",
            "none",
            "--lower-case",
            "no",
        ]
    )
    assert given == Options(
        folder=Path("out"), max_length=64, rates=(1e-3, 2e-3), kind="b", most=None, lower_case=False
    )
    assert read() == Options(folder=Path("out"))
    assert read("--dry-run", "--set", "a=1", "--set", "b=2").settings == ("a=1", "b=2")
    assert read("--dry-run").dry_run
    assert read("--input", "a", "b", "--input", "c").input == (("a", "b"), ("c",))


def test_the_old_spelling_is_taken_and_other_options_pass_through_unchanged():
    assert read("--max_length", "64") == read("--max-length=64") == read("--max_length=64")
    argv = ["--folder", "x_y", "--max_length", "64", "--direct_num_workers", "2", "--temp_a=b_c"]
    given, rest = read_known_options(Options, argv, "job", "")
    assert (given.folder, given.max_length) == (Path("x_y"), 64)
    assert rest == ["--direct_num_workers", "2", "--temp_a=b_c"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--max-length 8", "--max-length 8: must be from 16 to 512"),
        ("--max_length x", "--max-length x: expected a whole number"),
        ("--rate 1", "--rate 1: must be more than 0 and less than 1"),
        ("--rate nan", "--rate nan: must be a finite number"),
        ("--rates 0.1 -1", "--rates 0.1 -1: must be more than 0"),
        ("--kind c", "--kind c: expected a or b"),
        ("--most 1", "--most 1: must be at least 2"),
        ("--lower-case maybe", "--lower-case maybe: expected true or false"),
        ("--max-lenght 64", "--max-lenght: no such option; there are .*did you mean --max-length"),
        ("--max-length", "argument --max-length: expected one argument"),
    ],
)
def test_a_mistake_names_the_option(words, told):
    with pytest.raises(UserError, match=f"^{told}"):
        read(*words.split())


def test_what_is_required_is_asked_for():
    with pytest.raises(UserError, match="required: --folder"):
        read_options(Options, [], "job", "")


def test_the_help_says_group_bounds_and_default(capsys):
    with pytest.raises(SystemExit):
        read("--help")
    told = " ".join(capsys.readouterr().out.split())
    assert "where it is: --folder PATH" in told
    assert "--max-length N tokens (from 16 to 512, default: 128)" in told
    assert "--kind {a,b}" in told


@pytest.mark.parametrize(
    ("hint", "text", "value"),
    [
        (int, "1_000", 1000),
        (float, "5e-4", 5e-4),
        (tuple[float, ...], "3e-4, 1e-3", (3e-4, 1e-3)),
        (list[int], "[0, 1]", [0, 1]),
        (bool, "True", True),
        (int | None, "all", None),
        (str, "none", "none"),
    ],
)
def test_a_text_becomes_a_value(hint, text, value):
    assert parse_value(hint, text) == value


def test_settings_replace_fields_with_or_without_their_section():
    old = Options(folder=Path("x"))
    for path in ("max_length", "job.max_length"):
        [new] = replace_settings([old], {path: "64"}, "job")
        assert new.max_length == 64
    for path, text, told in (
        ("job.max_lenght", "64", "job.max_lenght: no such field; there are folder.*max_length"),
        ("max_length", "x", "max_length=x: expected a whole number"),
        ("max_length", "8", "max_length=8: must be from 16 to 512"),
        ("corpus.seed", "8", "corpus.seed: no such field; .*the section here is job"),
    ):
        with pytest.raises(UserError, match=f"^{told}"):
            replace_settings([old], {path: text}, "job")
