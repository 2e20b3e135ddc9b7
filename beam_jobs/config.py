"""What can be set for the jobs: each option with its meaning, unit, bounds and default.

Options that exclude each other are refused here too, so whoever holds options holds good ones.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from beam_jobs.job.errors import UserError
from beam_jobs.job.settings import Setting
from beam_jobs.reading import fields, layout
from beam_jobs.text import languages, splits

MAX_SAMPLE_BYTES = 1_000_000
"""Bytes of text to train Punkt on; why so many: corpus/plan.py."""
SHORTEST_SEQUENCE, LONGEST_SEQUENCE = 16, 65_535
"""Tokens; positions in a sequence are stored in 16 bits."""

Patterns = tuple[str, ...]
Split = Literal["pretrain", "train", "dev", "test"]


@dataclass(frozen=True, kw_only=True)
class DumpOptions:
    """The dump."""

    input: Annotated[
        tuple[Patterns, ...],
        Setting(
            "files, folders or globs; gs:// and s3:// too. Given again: another dump, a later one",
            metavar="GLOB",
        ),
    ]
    output: Annotated[str, Setting("folder of the result", metavar="DIR")]
    format: Annotated[
        layout.Format | None, Setting("instead of finding it out from the content")
    ] = None
    columns: Annotated[
        str | None,
        Setting(
            f"columns of a format of your own, for example text=body,stars=score: "
            f"{', '.join(fields.FIELDS)}",
            metavar="FIELD=NAME,…",
        ),
    ] = None
    records: Annotated[
        str | None,
        Setting(
            "key of the list of reviews, in a file that is one JSON object around it, for example "
            "reviews or data.reviews",
            metavar="KEY",
        ),
    ] = None
    encoding: Annotated[
        str, Setting("of the text; what does not follow it is read as cp1252 and counted")
    ] = "utf-8"
    max_record_bytes: Annotated[int, Setting("longer records are rejected unread", ge=1)] = (
        16_000_000
    )
    max_expansion: Annotated[
        float, Setting("times its size that a packed file may expand to; 0: any", ge=0)
    ] = 200
    keep_raw_rejects: Annotated[
        bool,
        Setting(
            "write the bytes of records that cannot be read, names and ids of reviewers included, "
            "into rejects/",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class TextOptions(DumpOptions):
    """The texts."""

    repair_run_ons: Annotated[bool, Setting('"great!It" becomes "great! It"')] = True
    mask_personal_data: Annotated[bool, Setting("mask e-mail addresses and telephone numbers")] = (
        True
    )
    min_words: Annotated[int, Setting("shorter texts are dropped", ge=0)] = 1
    max_characters: Annotated[int, Setting("longer texts are dropped", ge=1)] = 20_000
    languages: Annotated[
        tuple[str, ...],
        Setting("keep only reviews in these, for example en; empty: all. Slow", metavar="CODE"),
    ] = ()

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

    seen: Annotated[
        Patterns, Setting("earlier corpora: what is in them is left out", metavar="DIR")
    ] = ()
    near_duplicates: Annotated[
        float,
        Setting(
            "drop texts this similar to an earlier one too, for example 0.8; 0: none",
            ge=0,
            le=1,
            metavar="SIMILARITY",
        ),
    ] = 0
    withhold: Annotated[
        Patterns,
        Setting("files of evaluation texts that must never reach pre-training", metavar="GLOB"),
    ] = ()
    withhold_own: Annotated[
        bool,
        Setting(
            "drop pretrain and train reviews that nearly repeat a dev or test review; a quarter "
            "more CPU time of the corpus job"
        ),
    ] = True
    punkt: Annotated[
        str | None,
        Setting(
            "punkt.json of a corpus, or NLTK's …/punkt_tab/english, instead of training",
            metavar="PATH",
        ),
    ] = None
    punkt_sample_bytes: Annotated[int, Setting("text to train Punkt on, at most", ge=1)] = (
        MAX_SAMPLE_BYTES
    )
    split: Annotated[str, Setting("shares of the distinct texts in each split")] = (
        splits.DEFAULT_SHARES
    )
    seed: Annotated[int, Setting("decides which text falls into which split")] = 0

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

    scorer: Annotated[str, Setting("folder made by model.scorer", metavar="DIR")]
    scorer_sha256: Annotated[
        str, Setting("digest that scorer.pt2 must have (default: scorer.json's)", metavar="HEX")
    ] = ""
    model_version: Annotated[str, Setting("written beside every label")] = ""


@dataclass(frozen=True, kw_only=True)
class ShardsOptions:
    """Options of beam_jobs.shards_job."""

    corpus: Annotated[str, Setting("folder that corpus_job wrote", metavar="DIR")] = ""
    general_text: Annotated[
        Patterns,
        Setting("instead: text files, plain or packed, one document a block", metavar="GLOB"),
    ] = ()
    punkt: Annotated[
        str | None,
        Setting(
            "of --general-text: Punkt parameters, punkt.json of a corpus; else trained on the text",
            metavar="PATH",
        ),
    ] = None
    withhold: Annotated[
        Patterns,
        Setting("of --general-text: evaluation files whose texts must not get in", metavar="GLOB"),
    ] = ()
    withhold_corpus: Annotated[
        str,
        Setting(
            "of --general-text: corpus whose dev and test reviews must not get in", metavar="DIR"
        ),
    ] = ""
    vocabulary: Annotated[str, Setting("folder that model.vocabulary wrote", metavar="DIR")]
    output: Annotated[str, Setting("folder of the shards", metavar="DIR")]
    max_length: Annotated[
        int, Setting("tokens of a sequence", ge=SHORTEST_SEQUENCE, le=LONGEST_SEQUENCE)
    ] = 128
    split: Annotated[Split, Setting("side of the corpus")] = "pretrain"

    def __post_init__(self) -> None:
        if bool(self.corpus) == bool(self.general_text):
            raise UserError("give one of --corpus and --general-text")
        if self.general_text and self.split != "pretrain":
            raise UserError(
                f"--split: {self.split}; general text is for pre-training only, leave --split out"
            )
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

    reviews: Annotated[int, Setting("lines to write, messy ones included", ge=1)] = 20_000
    seed: Annotated[int, Setting("the same seed gives the same bytes")] = 0
    output: Annotated[str, Setting("file to write, gzip if it ends in .gz", metavar="FILE")] = (
        "sample.json.gz"
    )
