"""A command line has the arguments of a function and the fields of its models."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import Field
from typing_extensions import Doc

from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.settings import Settings
from tests.refusals import refuses


class Training(Settings):
    """What may be set too."""

    batch: int = Field(description="sequences in a step")
    rates: tuple[float, ...] = Field(default=(), description="several")


class Config(Settings):
    """What decides the result."""

    task: str = Field(description="name")
    max_length: int = Field(default=128, ge=16, le=512, description="tokens")
    kind: Literal["a", "b"] | None = Field(default="a", description="one of two")
    lower_case: bool = Field(default=True, description="fold case")
    labels: tuple[str, ...] = ()
    settings: dict[str, str] = Field(default={})
    others: ClassVar = (Training,)


def pack(
    config: Config,
    output: Annotated[str | Path, Doc("folder of the result")],
    *,
    share: Annotated[float, Doc("of all")] = 0.5,
    beam_options: tuple[str, ...] = (),
):
    """Pack something.

    More is not shown.
    """
    if share > 1:
        raise UserError("at most 1", "share", share)
    return {"config": config, "output": output, "share": share, "beam": [*beam_options]}


def read(*words):
    return call_job(pack, ["--task", "t", "--output", "out", *words])


def test_words_become_the_arguments_of_the_function():
    words = "--max-length 64 --kind none --lower-case false --labels a b --labels c --share 1"
    assert read(*words.split()) == {
        "config": Config(
            task="t", max_length=64, kind=None, lower_case=False, labels=("a", "b", "c")
        ),
        "output": "out",
        "share": 1.0,
        "beam": [],
    }
    more = read("--batch", "8", "--rates", "1e-3", "2e-3")["config"].settings
    assert more == {"batch": "8", "rates": "1e-3,2e-3"}


def test_a_number_may_have_the_default_zero():
    def draw(seed: Annotated[int, Doc("of the draw")] = 0):
        return {"seed": seed}

    assert call_job(draw, []) == {"seed": 0}
    assert call_job(draw, ["--seed", "7"]) == {"seed": 7}


def test_the_last_word_counts():
    given = read("--max-length", "64", "--share", "1", "--max_length", "32", "--share", "0.2")
    assert (given["config"].max_length, given["share"]) == (32, 0.2)


def test_underscores_are_taken_and_other_options_pass_through_unchanged():
    given = read("--max_length=64", "--direct_num_workers", "2", "--temp_a=b_c")
    assert given["config"].max_length == 64
    assert given["beam"] == ["--direct_num_workers", "2", "--temp_a=b_c"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--max-length 8", "--max-length 8: "),
        ("--max_length x", "--max-length x: "),
        ("--max-length", "--max-length"),
        ("--kind c", "--kind"),
        ("--lower-case maybe", "--lower-case"),
        ("--share x", "--share"),
        ("--share 2", "--share 2.0: "),
    ],
)
def test_a_mistake_names_the_option(words, named):
    with refuses(named):
        read(*words.split())


def test_what_is_missing_is_asked_for():
    for words, option in ((["--task", "t"], "--output"), (["--output", "o"], "--task")):
        with refuses(option):
            call_job(pack, words)


def test_the_help_has_bounds_and_default(capsys):
    with pytest.raises(SystemExit):
        read("--help")
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "tokens (at least 16, at most 512, default: 128)" in shown
    assert "[choices: a, b]" in shown
    assert "of all (default: 0.5)" in shown
    assert "More is" not in shown
