"""The form's section of the dump: where its files lie and how they are read."""

import codecs
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from beam_jobs.config import CorpusOptions
from beam_jobs.core.errors import UserError
from beam_jobs.core.settings import Settings
from beam_jobs.reading import fields
from beam_jobs.reading.formats import FORMATS
from flows.configuration.addresses import Address
from flows.configuration.sections import make_form_field

if TYPE_CHECKING:
    Format = str
else:
    Format = Literal["", *FORMATS]


class Files(Settings):
    """Where the reviews lie."""

    paths: list[Address] = Field(
        default=["sample:20000"],
        min_length=1,
        description="Files or globs of reviews: JSON (2014, 2018, 2023 releases), CSV, TSV, "
        "fastText, SNAP, Parquet; "
        "also as gz, bz2, zst or zip; gs:// and s3:// too. `sample:20000` writes a synthetic dump "
        "of 20,000 reviews",
    )

    @field_validator("paths")
    @classmethod
    def _check_paths(cls, paths: list[str]) -> list[str]:
        for path in paths:
            if not path.strip():
                raise ValueError("an empty path; name a file, a glob or sample:NUMBER")
            number = path.removeprefix("sample:")
            if path.startswith("sample:") and not (number.isdecimal() and int(number)):
                raise ValueError(f"{path!r}: write sample:NUMBER, for example sample:20000")
        return paths


class Reading(Settings):
    """How the files of a dump are read."""

    columns: str = make_form_field(CorpusOptions, "columns", default="")
    records: str = make_form_field(CorpusOptions, "records", default="")
    format: Format = Field(default="", description="Empty: found out from the content")
    encoding: str = Field(default="", description="Of the text, for example cp1252; empty: UTF-8")

    @field_validator("columns")
    @classmethod
    def _check_columns(cls, columns: str) -> str:
        try:
            fields.parse_column_overrides(columns)
        except UserError as mistake:
            raise ValueError(str(mistake).removeprefix("--columns ")) from None
        return columns

    @field_validator("encoding")
    @classmethod
    def _check_encoding(cls, encoding: str) -> str:
        try:
            codecs.lookup(encoding or "utf-8")
        except LookupError:
            raise ValueError("not an encoding Python knows") from None
        return encoding


class Dump(Reading, Files):
    """The reviews, as they were published."""
