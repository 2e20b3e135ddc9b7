"""Models of what a user sets: read from texts, with mistakes of one line."""

import pickle
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import Field

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.settings import (
    Settings,
    build_settings,
    parse_field,
    replace_settings,
)
from tests.refusals import refuses


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


class Packing(Settings):
    """Has settings of another model too."""

    options: Options = Options(folder=Path("x"))
    settings: dict[str, str] = Field(default={})
    others: ClassVar = (Options,)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("max_length", 8), ("max_length", "x"), ("rate", 1), ("rate", "nan")),
        *(("rates", [0.1, -1]), ("kind", "c"), ("most", 1), ("lower_case", "maybe")),
        ("max_lenght", 64),
    ],
)
def test_a_mistake_names_the_field(field, value):
    with refuses(field=field):
        build_settings(Options, {"folder": "out", field: value})
    with refuses(field=f"options.{field}"):
        build_settings(Packing, {"options": {"folder": "out", field: value}})


def test_fields_of_other_models_are_kept_as_text():
    given = build_settings(
        Packing, {"max_length": 64, "settings": {"rate": "0.2"}, "rates": [1, 2]}
    )
    assert given.settings == {"max_length": "64", "rate": "0.2", "rates": "1,2"}


def test_an_error_goes_to_another_process_with_its_field():
    error = UserError("no", "folder", ["a b", 1])
    told = pickle.loads(pickle.dumps(error))
    assert str(told) == str(error) == "folder 'a b' 1: no"
    assert (told.message, told.field, told.value) == ("no", "folder", ["a b", 1])
    assert str(UserError(**error.describe())) == str(error)
    assert UserError(**UserError("no").describe()).field == ""


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("max_length", "1_28", 128),
        ("rate", "5e-1", 0.5),
        ("rates", "3e-4, 1e-3", (3e-4, 1e-3)),
        ("lower_case", "True", True),
        ("most", "none", None),
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
        with refuses(field=path, value=text):
            replace_settings([old], {path: text}, "job")
