"""Options and `--set` texts: read from the same fields, with mistakes of one line."""

import pickle
import shlex
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from amazon_electra.beam_jobs.core.errors import UserError, name_setting, spell_settings
from amazon_electra.beam_jobs.core.settings import (
    Settings,
    make_option_speller,
    parse_field,
    read_known_options,
    read_options,
    replace_settings,
)


class Place(Settings):
    """Where it is."""

    folder: Path = Field(description="folder of the result")


class Options(Place):
    """What a job may be told."""

    max_length: int = Field(default=128, ge=16, le=512, description="tokens")
    rate: float = Field(default=0.1, gt=0, lt=1, description="learning rate")
    rates: tuple[Annotated[float, Field(gt=0)], ...] = Field(default=(), description="several")
    kind: Literal["a", "b"] | None = Field(default=None, description="one of two")
    most: int | None = Field(default=9, ge=2, description="examples at most")
    lower_case: bool = Field(default=True, description="fold case")
    settings: dict[str, str] = Field(default={}, description="any other")


def read(*words):
    return read_options(Options, ["--folder", "out", *words], "job", "Does something.")


def test_a_word_becomes_what_its_field_is():
    words = "--max-length 64 --rates 1e-3 2e-3 --kind b --most none --lower-case no"
    assert read(*words.split()) == Options(
        folder=Path("out"), max_length=64, rates=(1e-3, 2e-3), kind="b", most=None, lower_case=False
    )
    assert read() == Options(folder=Path("out"))
    assert read("--lower-case").lower_case
    assert read("--set", "a=1", "b=2", "--set", "c=3").settings == {"a": "1", "b": "2", "c": "3"}


def test_underscores_are_taken_and_other_options_pass_through_unchanged():
    assert read("--max_length", "64") == read("--max-length=64") == read("--max_length=64")
    argv = ["--folder", "x_y", "--max_length", "64", "--direct_num_workers", "2", "--temp_a=b_c"]
    given, rest = read_known_options(Options, argv, "job", "")
    assert (given.folder, given.max_length) == (Path("x_y"), 64)
    assert rest == ["--direct_num_workers", "2", "--temp_a=b_c"]


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ("--max-length 8", "max_length"),
        ("--max_length x", "max_length"),
        ("--rate 1", "rate"),
        ("--rate nan", "rate"),
        ("--rates 0.1 -1", "rates"),
        ("--kind c", "kind"),
        ("--most 1", "most"),
        ("--lower-case maybe", "lower_case"),
    ],
)
def test_a_mistake_names_the_field_and_its_line_the_option(words, field):
    with pytest.raises(UserError) as told:
        read(*words.split())
    assert told.value.field == field
    option = f"--{field.replace('_', '-')}"
    assert spell_settings(str(told.value), make_option_speller(Options)).startswith(option)


def test_a_setting_without_a_value_is_named():
    with pytest.raises(UserError, match="epochs"):
        read("--set", "a=1", "epochs")


def test_an_unknown_or_unfinished_option_is_named():
    for words in (["--max-lenght", "64"], ["--max-length"]):
        with pytest.raises(UserError, match="--max-length"):
            read(*words)


def test_a_message_is_spelled_as_a_shell_takes_it():
    named = [
        ("max_length", 8, "--max-length 8"),
        ("rate", "-1", "--rate=-1"),
        ("rates", [0.5, 1], "--rates 0.5 1"),
        ("folder", "a `b`'s \\ \n", None),
        ("folder", Path("my reviews"), "--folder 'my reviews'"),
        ("lower_case", False, "--lower-case false"),
        ("max_length", None, "--max-length"),
        ("job_endpoint", "a:1", "--job_endpoint a:1"),
        ("learning_rate", 0.1, "--set learning_rate=0.1"),
        ("learning_rate", None, "`learning_rate`"),
    ]
    for field, value, spelled in named:
        text = spell_settings(f"{name_setting(field, value)}: no", make_option_speller(Options))
        if spelled is None:
            assert shlex.split(text.removesuffix(": no")) == ["--folder", value]
        else:
            assert text == f"{spelled}: no"
    assert vars(UserError("`folder='x'`: no")) == vars(UserError("no", "folder", "x"))
    assert UserError("`docker` is away").message == "`docker` is away"
    told = pickle.loads(pickle.dumps(UserError("no", "folder", "x")))
    assert (told.message, told.field, told.value) == ("no", "folder", "x")


def test_what_is_required_is_asked_for():
    with pytest.raises(UserError, match="--folder"):
        read_options(Options, [], "job", "")


def test_the_help_has_bounds_and_default(capsys):
    with pytest.raises(SystemExit):
        read("--help")
    told = " ".join(capsys.readouterr().out.split())
    assert "--max-length N tokens (at least 16, at most 512, default: 128)" in told
    assert "--kind {a,b}" in told


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("max_length", "1_28", 128),
        ("rate", "5e-1", 0.5),
        ("rates", "3e-4, 1e-3", (3e-4, 1e-3)),
        ("rates", "[0.1, 1]", (0.1, 1)),
        ("lower_case", "True", True),
        ("most", "all", None),
        ("folder", "none", Path("none")),
    ],
)
def test_a_text_becomes_a_value(name, text, value):
    assert parse_field(Options, name, text) == value


def test_settings_replace_fields_with_or_without_their_section():
    old = Options(folder=Path("x"))
    for path in ("max_length", "job.max_length"):
        [new] = replace_settings([old], {path: "64"}, "job")
        assert new.max_length == 64
    for path, text in (
        ("job.max_lenght", "64"),
        ("max_length", "x"),
        ("max_length", "8"),
        ("corpus.seed", "8"),
    ):
        with pytest.raises(UserError) as told:
            replace_settings([old], {path: text}, "job")
        assert (told.value.field, told.value.value) == (path, text)
