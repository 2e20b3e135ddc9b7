"""What a user may set for the corpus job, and what the job makes of it."""

import argparse
from dataclasses import dataclass, replace
from typing import Any

from beam_jobs import evaluation_texts, languages, splits, storage
from beam_jobs.cleaning import Cleaning
from beam_jobs.command import UserMistake
from beam_jobs.formats import fields, layout
from beam_jobs.formats.layout import Layout
from beam_jobs.prepared import Preparation
from beam_jobs.work_units import DumpFile, look_at

VERSION = 5  # to be raised when the same dump gives another corpus
MOST_SAMPLE, LEAST_SAMPLE, SAMPLE_SHARE = 1_000_000, 250_000, 0.01
"""Bytes of text to train Punkt on, and the share of a dump's text between the bounds. A byte of it costs four times
what a byte of a review costs on all its way, so a hundredth of the text is 4% of the time. Of 8,000 reviews outside the
samples this many were cut as with a sample of 8 MB: 95.6–96.1% with 250 kB, 95.7–95.9% with 500 kB, 96.3–96.5% with
1 MB, 96.6–96.7% with 2 MB; which texts are drawn matters as much as how many."""

WORK_NAME = "_work-[0-9a-f]{16}"
"""Of the folder in which a job keeps what it has done, until it ends."""
UNIT_NAME = r"\d{4,}-\d{5,}"
"""work_units.Unit.name"""


def parse(argv: list[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """Our options, and what is left for Beam."""
    parser = argparse.ArgumentParser(
        "corpus_job",
        description="Review dumps to a corpus of clean, distinct sentences. Any Apache Beam option may follow.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    add_dump_options(parser)
    add_text_options(parser)
    add_corpus_options(parser)
    args, flags = parser.parse_known_args(argv)
    check(args)
    check_corpus(args)
    return args, flags


def add_dump_options(parser: argparse.ArgumentParser) -> None:
    """Where the reviews are and how they are written."""
    dump = parser.add_argument_group("the dump").add_argument
    dump(
        "--input",
        nargs="+",
        action="append",
        required=True,
        metavar="GLOB",
        help="files, folders or globs; gs:// and s3:// too. Given again: another dump, that came later",
    )
    dump("--output", required=True, metavar="DIR", help="folder of the result")
    dump("--format", choices=layout.NAMES, help="instead of finding it out from the content")
    dump("--columns", metavar="FIELD=NAME,…", help=f"columns of a format of your own: {', '.join(fields.FIELDS)}")
    dump("--encoding", default="utf-8", help="of the text; what does not follow it is read as cp1252 and counted")
    dump("--max_record_bytes", type=int, default=16_000_000, help="longer records are rejected unread")
    dump("--max_expansion", type=float, default=200, help="times its size that a packed file may expand to; 0: any")
    dump(
        "--keep_raw_rejects",
        type=yes_or_no,
        default=False,
        metavar="BOOL",
        help="write the bytes of records that cannot be read, names and ids of reviewers included, into rejects/",
    )


def add_text_options(parser: argparse.ArgumentParser) -> None:
    """What becomes of each text by itself."""
    texts = parser.add_argument_group("the texts").add_argument
    texts("--repair_run_ons", type=yes_or_no, default=True, metavar="BOOL", help='"great!It" becomes "great! It"')
    texts(
        "--mask_personal_data", type=yes_or_no, default=True, metavar="BOOL", help="e-mail addresses, telephone numbers"
    )
    texts("--min_words", type=int, default=1, help="shorter texts are dropped")
    texts("--max_characters", type=int, default=20_000, help="longer texts are dropped")
    texts("--languages", nargs="*", default=[], metavar="CODE", help="keep only these, such as en (slow)")


def add_corpus_options(parser: argparse.ArgumentParser) -> None:
    """What becomes of a text beside the others."""
    corpus = parser.add_argument_group("the corpus").add_argument
    corpus("--seen", nargs="+", default=[], metavar="DIR", help="earlier corpora: what is in them is left out")
    corpus(
        "--near_duplicates", type=float, default=0, metavar="SIMILARITY", help="drop them too, from this one on: 0.8"
    )
    corpus("--withhold", nargs="*", default=[], metavar="GLOB", help="evaluation files whose texts must not get in")
    corpus("--punkt", metavar="PATH", help="punkt.json of a corpus, or NLTK's …/punkt_tab/english, instead of training")
    corpus("--punkt_sample_bytes", type=int, default=MOST_SAMPLE, help="text to train Punkt on, at most")
    corpus("--split", default=splits.DEFAULT, help="shares of the sides")
    corpus("--seed", type=int, default=0, help="of the split")


def yes_or_no(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise argparse.ArgumentTypeError("true or false")
    return text.lower() == "true"


def check(args: argparse.Namespace) -> None:
    """Of the dump and the texts."""
    if args.languages and (wrong := set(args.languages) - languages.known()):
        raise UserMistake(f"--languages {' '.join(sorted(wrong))}: codes of two letters, such as en")
    try:
        "".encode(args.encoding)
    except (LookupError, UnicodeError):
        raise UserMistake(f"--encoding {args.encoding}: not an encoding Python knows") from None
    for name in ("max_record_bytes", "max_characters"):
        if getattr(args, name) <= 0:
            raise UserMistake(f"--{name} {getattr(args, name)}: must be above 0")


def check_corpus(args: argparse.Namespace) -> None:
    if not 0 <= args.near_duplicates <= 1:
        raise UserMistake(f"--near_duplicates {args.near_duplicates}: a similarity between 0 and 1, such as 0.8")
    if args.seen and args.near_duplicates:
        raise UserMistake(
            "--near_duplicates with --seen: an earlier corpus keeps no signatures of its texts, only their hashes; "
            "give 0, or all dumps in one call"
        )
    if args.punkt:
        from beam_jobs import sentences

        sentences.given(args.punkt)
    if args.punkt_sample_bytes <= 0:
        raise UserMistake(f"--punkt_sample_bytes {args.punkt_sample_bytes}: must be above 0")


def dump_files(args: argparse.Namespace) -> list[DumpFile]:
    """Dumps in the order given, the files of each by name; a file named twice is in the first."""
    given = Layout("json_lines", encoding=args.encoding, longest=args.max_record_bytes)
    overrides = fields.parse_overrides(args.columns)
    files: list[DumpFile] = []
    for number, patterns in enumerate(args.input):
        paths = [path for path in storage.expand(patterns) if path not in {file.path for file in files}]
        found = look_at(paths, args.format, overrides, given, args.max_expansion)
        files += [replace(file, index=len(files) + file.index, dump=number) for file in found]
    return files


@dataclass(frozen=True)
class Folders:
    """Where a run keeps what; everything below `work` is gone when it is done."""

    output: str
    work: str

    @property
    def cuts(self) -> str:
        return storage.join(self.work, "cuts")

    @property
    def prepared(self) -> str:
        return storage.join(self.work, "prepared")

    @property
    def written(self) -> str:
        return storage.join(self.work, "written")

    @property
    def seen(self) -> str:
        return storage.join(self.work, "seen")

    @property
    def withheld(self) -> str:
        return storage.join(self.work, "withheld.npz")

    def clear_earlier(self, results: str) -> None:
        """Removes what another job left in the output folder, and what killed writers of this one have.

        `results`: the pattern of the names of what such a job leaves.
        """
        rejects = storage.join(self.output, "rejects")
        for folder in (self.output, rejects):
            storage.remove_leftovers(folder)
        if not storage.exists(self.work):
            storage.remove_named(rejects, rf"{UNIT_NAME}\.jsonl")
            storage.remove_named(self.output, f"{WORK_NAME}|{results}")


def preparation(args: argparse.Namespace, files: list[DumpFile], folders: Folders) -> Preparation:
    text_bytes = 1 + sum(file.plain_size for file in files) / 2  # about half of a dump is text
    sample_bytes = min(args.punkt_sample_bytes, max(LEAST_SAMPLE, SAMPLE_SHARE * text_bytes))
    return replace(
        text_preparation(args, folders),
        bounds=splits.parse_shares(args.split),
        seed=args.seed,
        sample_share=0 if args.punkt or args.seen else min(1.0, sample_bytes / text_bytes),
        withheld=folders.withheld if args.withhold else "",
        near_duplicates=args.near_duplicates,
    )


def text_preparation(args: argparse.Namespace, folders: Folders) -> Preparation:
    """Of every text by itself; all are on one side and none is a sample."""
    return Preparation(
        folder=folders.prepared,
        bounds=(),
        seed=0,
        sample_share=0,
        cleaning=Cleaning(repair_run_ons=args.repair_run_ons),
        mask_personal_data=args.mask_personal_data,
        keep_raw_rejects=args.keep_raw_rejects,
        min_words=args.min_words,
        max_characters=args.max_characters,
        languages=tuple(args.languages),
    )


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """What decides the bytes of the corpus beside the dump."""
    return {name: value for name, value in vars(args).items() if name not in {"input", "output", "seen"}}


def agreed(args: argparse.Namespace, withheld: list[str]) -> dict[str, Any]:
    """What corpora that follow one another must have in common: all that decides what becomes of a text."""
    bounds = [0.0, *splits.parse_shares(args.split)]
    shares = {side: round(100 * (b - a), 6) for side, a, b in zip(splits.SPLITS, bounds, bounds[1:], strict=False)}
    return {
        "version": VERSION,
        "split": ",".join(f"{side}={share:g}" for side, share in shares.items()),
        **{name: getattr(args, name) for name in ("seed", "repair_run_ons", "mask_personal_data", "min_words")},
        **{name: getattr(args, name) for name in ("max_characters", "near_duplicates")},
        "languages": sorted(args.languages),
        "withhold": sorted(map(evaluation_texts.named, withheld)),
    }
