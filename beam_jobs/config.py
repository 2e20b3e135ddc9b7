"""What decides the result of a job: each field with its meaning, unit, bounds and default.

`make_corpus`, `make_shards` and `score` take one of these configs; the rest is their arguments.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from typing_extensions import Doc

from amazon_electra.beam_jobs.core.errors import refuse
from amazon_electra.beam_jobs.core.limits import Limits
from amazon_electra.beam_jobs.core.settings import Settings
from amazon_electra.beam_jobs.labels import stars
from amazon_electra.beam_jobs.model_folder.config import ScoringPrecision
from amazon_electra.beam_jobs.reading import fields, formats
from amazon_electra.beam_jobs.reading.dates import Order
from amazon_electra.beam_jobs.text import splits

CORPUS_VERSION, SCORES_VERSION = 34, 20
"""To be raised when the same dump gives another corpus, or other scores."""
SCORING_TOTALS = "scores.json"  # beside the files of scores: what was counted of each file

ScoreFormat = Literal["parquet", "csv"]
Place = str | Path  # a file, folder, glob or address
Places = Place | Sequence[Place]
Input = Annotated[Places, Doc("Files, folders or globs, also in gs:// and s3://")]
Output = Annotated[Place, Doc("Folder of the result")]


def list_patterns(given: Places) -> tuple[str, ...]:
    """Return the files, folders and globs that an argument names: one, or a list of them."""
    return (str(given),) if isinstance(given, Place) else tuple(map(str, given))


class ReadingConfig(Settings):
    """What the files of a dump are, how they are read, and what is mended in them."""

    columns: str | None = Field(
        default=None,
        description="Columns of your own format, for example text=body,stars=score; nested ones as "
        "text=_source.body, in lists as text=products[].reviews[].text; quote a name with a comma: "
        '"text=good, bad",stars=score. Fields: ' + ", ".join(fields.FIELDS),
    )
    id: str | None = Field(
        default=None, description="Column with the ids; none: one such as id or review_id, if any"
    )
    records: str | None = Field(
        default=None, description="Key of the list in a JSON object, for example data.reviews"
    )
    sheet: str | None = Field(
        default=None, description="Sheet of a workbook, for example of Excel; none: the first one"
    )
    format: str | None = Field(
        default=None,
        description="Format of the files, instead of detecting it from their first bytes: "
        + ", ".join(formats.FORMATS),
        json_schema_extra=formats.add_format_names,
    )
    encoding: str = Field(
        default="utf-8", description="Encoding of the text; invalid bytes are read as cp1252"
    )
    repair_mojibake: bool = Field(
        default=False,
        description="Mend texts whose UTF-8 was read in another encoding, where that is certain: "
        '"donâ€™t" becomes "don’t" (ftfy)',
    )
    max_record_bytes: int = Field(
        default=Limits.max_record_bytes, ge=1, description="A longer record is rejected unread"
    )
    max_expansion: float = Field(
        default=Limits.max_expansion, ge=0, description="Limit of unpacked by packed size; 0: none"
    )

    @property
    def limits(self) -> Limits:
        return Limits(self.max_record_bytes, self.max_expansion)

    @model_validator(mode="after")
    def _check_reading(self) -> Self:
        fields.parse_column_overrides(self.columns)
        if self.format is not None:
            formats.find_format(self.format)
        why = "not an encoding Python knows"
        with refuse(LookupError, message=why, field="encoding", value=self.encoding):
            "".encode(self.encoding)
        return self


class LabelConfig(Settings):
    """What is learnt from a dump: its stars, and classes of its own."""

    stars_scale: str | None = Field(
        default=None,
        description="Scale of the column of stars, for example 1-10, or 6-1 where 1 is the best; "
        "binary for 0 and 1; nps for 0 to 10 as detractors, passives and promoters; none: found "
        "from its values",
    )
    labels: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description="Columns with classes of your own, for example returned_because; each becomes "
        "a task label:COLUMN",
    )
    fold_labels: bool = Field(
        default=True,
        description="Read Yes, yes and YES as one class, 01, 1,0 and 1 too, and n/a, NULL, None, "
        "nan and - as no value; false: classes stay as typed",
    )

    @model_validator(mode="after")
    def _check_scale(self) -> Self:
        stars.check_scale(self.stars_scale)
        return self


class SplitConfig(Settings):
    """Who may see which review."""

    split: str = Field(
        default=splits.DEFAULT_SHARES, description="Share of the distinct texts in each split"
    )
    split_by: Literal["text", "product", "user", "time"] = Field(
        default="text",
        description="What decides the split: the text; the product or user, so that none is in "
        "two splits; or the time: the latest reviews are test, those before them dev",
    )
    dates: Order | None = Field(
        default=None,
        description="With split_by time: order of day, month and year in dates such as 03/04/2015, "
        "where the column does not show it: DMY or MDY; none: found from its values",
    )


class TextConfig(ReadingConfig):
    """The texts: a classifier reads them as its corpus had them."""

    repair_run_ons: bool = Field(default=True, description='"great!It" becomes "great! It"')
    mask_personal_data: bool = Field(
        default=True, description="Mask e-mail addresses and telephone numbers"
    )
    title: bool = Field(
        default=True, description="Read the title of a review as the first sentence of its text"
    )
    max_characters: int = Field(
        default=20_000, ge=1, description="Leave out titles, and of a corpus texts, that are longer"
    )


class CorpusConfig(TextConfig, LabelConfig, SplitConfig):
    """What decides a corpus, beside the dump and the texts that are left out."""

    min_words: int = Field(default=1, ge=0, description="Drop texts with fewer words")
    languages: tuple[Annotated[str, Field(pattern="^[a-z]{2}$")], ...] = Field(
        default=(),
        description="Keep only reviews in these languages, for example en; empty: all. Slow",
    )
    near_duplicates: float = Field(
        default=0, ge=0, le=1, description="Drop texts this similar to an earlier one; 0: off"
    )
    seed: int = Field(default=0, description="Decides which text falls into which split")


class ScoringConfig(TextConfig):
    """What decides the scores, beside the dump and the model."""

    precision: ScoringPrecision = Field(
        default="fp32", description="int8 uses model_quantized.onnx, where the folder has it"
    )
    explain: bool = Field(
        default=False,
        description="Write the three phrases with the largest weight for each answer (`because`); "
        "takes as many times longer as a text has phrases, 24 at most",
    )
    output_format: ScoreFormat | None = Field(
        default=None,
        description="Write a table in this format: file, row, id, text, label, the probability of "
        "each class; none: a copy of the input with the answers beside its columns",
    )
    model_version: tuple[str, ...] = Field(
        default=(),
        description="Version of each model, for scores.json and tables; none: the first digits of "
        "the model's digest",
    )


class ShardsConfig(Settings):
    """What decides the shards, beside the texts and the vocabulary."""

    max_length: int = Field(default=128, ge=16, le=65_535, description="Tokens in a sequence")
    split: Literal["pretrain", "train", "dev", "test"] = Field(
        default="pretrain", description="Split of the corpus to pack"
    )
    sample_reviews: int | None = Field(
        default=None,
        ge=1,
        description="Pack about this many reviews, the first of the split; of a small split there "
        "may be none. none: all",
    )
