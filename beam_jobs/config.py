"""What can be set for the jobs: each option with its meaning, unit, bounds and default.

Options that exclude each other are refused here too, so whoever holds options holds good ones.
"""

from dataclasses import dataclass
from typing import Literal

from beam_jobs.job.errors import UserError
from beam_jobs.job.limits import Limits
from beam_jobs.job.settings import setting
from beam_jobs.reading import fields, layout
from beam_jobs.text import languages, splits

MAX_SAMPLE_BYTES = 1_000_000
"""Bytes of text to train Punkt on; why so many: corpus/plan.py."""
SHORTEST_SEQUENCE, LONGEST_SEQUENCE = 16, 65_535
"""Tokens; positions in a sequence are stored in 16 bits."""

Patterns = tuple[str, ...]
Split = Literal["pretrain", "train", "dev", "test"]


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """How much a file that somebody else made may hold."""

    max_record_bytes: int = setting(
        "longer records are rejected unread, and end a file of --withhold",
        Limits.max_record_bytes,
        ge=1,
    )
    max_expansion: float = setting(
        "times its size that a packed dump, or file of --withhold, may expand to; 0: any",
        Limits.max_expansion,
        ge=0,
    )

    @property
    def limits(self) -> Limits:
        return Limits(self.max_record_bytes, self.max_expansion)


@dataclass(frozen=True, kw_only=True)
class DumpOptions(LimitOptions):
    """The dump."""

    input: tuple[Patterns, ...] = setting(
        "files, folders or globs; gs:// and s3:// too. Given again: another dump, a later one",
        metavar="GLOB",
    )
    output: str = setting("folder of the result", metavar="DIR")
    format: layout.Format | None = setting("instead of finding it out from the content", None)
    columns: str | None = setting(
        "columns of a format of your own, for example text=body,stars=score: "
        + ", ".join(fields.FIELDS),
        None,
        metavar="FIELD=NAME,…",
    )
    records: str | None = setting(
        "key of the list of reviews, in a file that is one JSON object around it, for example "
        "reviews or data.reviews",
        None,
        metavar="KEY",
    )
    encoding: str = setting(
        "of the text; what does not follow it is read as cp1252 and counted", "utf-8"
    )
    keep_raw_rejects: bool = setting(
        "write the bytes of records that cannot be read, names and ids of reviewers included, "
        "into rejects/",
        False,
    )


@dataclass(frozen=True, kw_only=True)
class TextOptions(DumpOptions):
    """The texts."""

    repair_run_ons: bool = setting('"great!It" becomes "great! It"', True)
    mask_personal_data: bool = setting("mask e-mail addresses and telephone numbers", True)
    min_words: int = setting("shorter texts are dropped", 1, ge=0)
    max_characters: int = setting("longer texts are dropped", 20_000, ge=1)
    languages: tuple[str, ...] = setting(
        "keep only reviews in these, for example en; empty: all. Slow", (), metavar="CODE"
    )

    def __post_init__(self) -> None:
        if self.languages and (wrong := set(self.languages) - languages.list_languages()):
            codes = " ".join(sorted(wrong))
            raise UserError(f"--languages {codes}: codes of two letters, such as en")
        try:
            "".encode(self.encoding)
        except (LookupError, UnicodeError):
            raise UserError(f"--encoding {self.encoding}: not an encoding Python knows") from None


@dataclass(frozen=True, kw_only=True)
class CorpusOptions(TextOptions):
    """Options of beam_jobs.corpus_job."""

    seen: Patterns = setting("earlier corpora: what is in them is left out", (), metavar="DIR")
    near_duplicates: float = setting(
        "drop texts this similar to an earlier one too, for example 0.8; 0: none",
        0,
        ge=0,
        le=1,
        metavar="SIMILARITY",
    )
    withhold: Patterns = setting(
        "files of evaluation texts that must never reach pre-training", (), metavar="GLOB"
    )
    withhold_own: bool = setting(
        "drop pretrain and train reviews that nearly repeat a dev or test review; a quarter more "
        "CPU time of the corpus job",
        True,
    )
    punkt: str | None = setting(
        "punkt.json of a corpus, or NLTK's …/punkt_tab/english, instead of training",
        None,
        metavar="PATH",
    )
    punkt_sample_bytes: int = setting("text to train Punkt on, at most", MAX_SAMPLE_BYTES, ge=1)
    split: str = setting("shares of the distinct texts in each split", splits.DEFAULT_SHARES)
    seed: int = setting("decides which text falls into which split", 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seen and self.near_duplicates:
            raise UserError(
                "--near-duplicates with --seen: an earlier corpus keeps no signatures of its "
                "texts, only their hashes; give 0, or all dumps in one call"
            )


@dataclass(frozen=True, kw_only=True)
class ScoringOptions(TextOptions):
    """Options of beam_jobs.scoring_job."""

    scorer: str = setting("folder made by model.scorer", metavar="DIR")
    scorer_sha256: str = setting(
        "digest that scorer.pt2 must have (default: scorer.json's)", "", metavar="HEX"
    )
    model_version: str = setting("written beside every label", "")


@dataclass(frozen=True, kw_only=True)
class ShardsOptions(LimitOptions):
    """Options of beam_jobs.shards_job."""

    corpus: str = setting("folder that corpus_job wrote", "", metavar="DIR")
    general_text: Patterns = setting(
        "instead: text files, plain or packed, one document a block", (), metavar="GLOB"
    )
    punkt: str | None = setting(
        "of --general-text: Punkt parameters, punkt.json of a corpus; else trained on the text",
        None,
        metavar="PATH",
    )
    withhold: Patterns = setting(
        "of --general-text: evaluation files whose texts must not get in", (), metavar="GLOB"
    )
    withhold_corpus: str = setting(
        "of --general-text: corpus whose dev and test reviews must not get in", "", metavar="DIR"
    )
    vocabulary: str = setting("folder that model.vocabulary wrote", metavar="DIR")
    output: str = setting("folder of the shards", metavar="DIR")
    max_length: int = setting(
        "tokens of a sequence", 128, ge=SHORTEST_SEQUENCE, le=LONGEST_SEQUENCE
    )
    split: Split = setting("side of the corpus", "pretrain")
    sample_reviews: int = setting(
        "of --corpus: pack about so many reviews of the split, those that come first; there may be "
        "none at all then. 0: all",
        0,
        ge=0,
    )

    def __post_init__(self) -> None:
        if bool(self.corpus) == bool(self.general_text):
            raise UserError("give one of --corpus and --general-text")
        if self.general_text and self.split != "pretrain":
            raise UserError(
                f"--split: {self.split}; general text is for pre-training only, leave --split out"
            )
        if self.general_text and self.sample_reviews:
            raise UserError("--sample-reviews: it is for --corpus; leave it out")
        for_text = "here it is for --general-text"
        if self.corpus and self.punkt:
            raise UserError(f"--punkt: a corpus is in sentences already; {for_text}")
        if self.corpus and self.withhold_corpus:
            raise UserError(f"--withhold-corpus: the splits of a corpus share no text; {for_text}")
        if self.corpus and self.withhold:
            raise UserError(f"--withhold: corpus_job has it for a corpus; {for_text}")


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """Options of beam_jobs.sample.sample_dump."""

    reviews: int = setting("lines to write, messy ones included", 20_000, ge=1)
    seed: int = setting("the same seed gives the same bytes", 0)
    output: str = setting("file to write, gzip if it ends in .gz", "sample.json.gz", metavar="FILE")
