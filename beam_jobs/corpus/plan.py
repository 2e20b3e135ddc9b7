"""Everything the corpus job will do, decided once from its options before any work begins."""

import re
from dataclasses import dataclass, field
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from amazon_electra.beam_jobs.config import CORPUS_VERSION, CorpusOptions, TextConfig
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import hash_bytes
from amazon_electra.beam_jobs.corpus.prepare import Preparation
from amazon_electra.beam_jobs.deduplication.evaluation_texts import identify_file
from amazon_electra.beam_jobs.engine import beam_options
from amazon_electra.beam_jobs.labels.values import CONTRADICTED
from amazon_electra.beam_jobs.reading import work_units
from amazon_electra.beam_jobs.reading.ids import add_id_column
from amazon_electra.beam_jobs.reading.work_units import DumpFile
from amazon_electra.beam_jobs.text import splits

UNIT_NAME = r"\d{4,}-\d{5,}"
"""Pattern of `work_units.Unit.name`, and of what it was in earlier versions."""
WORK_NAME = "_work-[0-9a-f]{16}"
"""Pattern of the name of the folder in which a job keeps what it has done, until it ends."""
CORPUS_FILES = rf"corpus-{UNIT_NAME}\.parquet|(corpus|punkt)\.json"
"""Pattern of the files of a finished corpus."""
LINES = ("rejects", CONTRADICTED)  # folders of a corpus with a file of JSON lines a unit
MIN_SAMPLE_BYTES = 250_000
"""Bytes of text to train Punkt on, at least; at most config.MAX_SAMPLE_BYTES. A byte of it costs
four times what a byte of a review costs on all its way, so a hundredth of the text is 4% of the
time. Of 8,000 reviews outside the samples this many were cut as with a sample of 8 MB: 95.6–96.1%
with 250 kB, 95.7–95.9% with 500 kB, 96.3–96.5% with 1 MB, 96.6–96.7% with 2 MB; which texts are
drawn matters as much as how many.
"""
SAMPLE_SHARE = 0.01  # of a dump's text, between the two bounds
TEXT_SHARE = 0.5  # of a dump's bytes, about: the rest are names of fields and identifiers
FILES_TOGETHER = 16  # of another corpus, whose held-out texts one worker writes to one file


@dataclass(frozen=True)
class Folders:
    """The output folder of a run and, below its work folder, what is removed when it is done."""

    output: str
    work: str
    cuts: str = field(init=False)
    prepared: str = field(init=False)
    written: str = field(init=False)
    others: str = field(init=False)
    """Runs of texts that are held out and are no reviews of the dump."""
    matches: str = field(init=False)  # what reviews share with held-out texts, and with one another
    failed: str = field(init=False)  # why units failed
    languages: str = field(init=False)  # file of reviews of the sample by language

    def __post_init__(self) -> None:
        for name in ("cuts", "prepared", "written", "others", "matches", "failed", "languages"):
            object.__setattr__(self, name, storage.join_path(self.work, name))

    @classmethod
    def of_job(cls, output: str, content: object) -> "Folders":
        """Return the folders of a job. Only one with the same `content`, everything that decides
        the bytes of its result, continues what an interrupted one has left.
        """
        work = f"_work-{hash_bytes(repr(content).encode())[:16]}"
        return cls(output, storage.join_path(output, work))

    def clear_other_runs(self, results: str) -> None:
        """Remove what another job left in the output folder, and what failed or killed writers of
        this one left.

        `results` is the pattern of the names of what such a job leaves.
        """
        lines = [storage.join_path(self.output, name) for name in LINES]
        for folder in (self.output, *lines):
            storage.remove_matching(folder, r"\..*\.tmp")
        storage.remove_path(self.failed)
        if not storage.exists(self.work):
            for folder in lines:
                storage.remove_matching(folder, rf"{UNIT_NAME}\.jsonl")
            storage.remove_matching(self.output, f"{WORK_NAME}|{results}")


@dataclass(frozen=True)
class CorpusPlan:
    """What is read, how, and where the results go."""

    files: tuple[DumpFile, ...]
    unit_bytes: int
    folders: Folders
    options: CorpusOptions
    preparation: Preparation
    withheld_files: tuple[str, ...]
    withheld_names: tuple[str, ...]  # names and digests of these (`evaluation_texts.identify_file`)
    withheld_corpus: tuple[tuple[str, ...], ...]
    """The Parquet files of the corpus whose dev and test reviews are withheld, in groups."""
    withheld_digest: str  # SHA-256 of its corpus.json; "" without one
    engine: PipelineOptions


def plan_corpus(args: CorpusOptions, flags: list[str]) -> CorpusPlan:
    """Return the plan of a job with these options and these flags of Beam.

    Raises UserError for inputs that cannot be read and an output that cannot be written.
    """
    if args.punkt:
        from amazon_electra.beam_jobs.text.punkt import read_punkt

        read_punkt(args.punkt)
    listed = work_units.list_dump_files(args, args.labels)
    files = [add_id_column(file, args.id) for file in listed]
    work_units.check_split_field(args.split_by, files)
    storage.check_output(args.output, [file.path for file in files])
    withheld = storage.expand_patterns(args.withhold, "withhold")
    others, digest = list_corpus(args.withhold_corpus) if args.withhold_corpus else ([], "")
    size = sum(file.plain_size for file in files)
    engine = beam_options.resolve_beam_options(flags, size)
    bounds = splits.parse_shares(args.split)
    identity = [
        *dict.fromkeys(file.identity for file in files),
        *map(storage.describe_identity, [*withheld, *others]),
    ]
    folders = Folders.of_job(
        args.output, [CORPUS_VERSION, identity, sorted(list_settings(args).items())]
    )
    text_bytes = 1 + size * TEXT_SHARE
    sample_bytes = min(args.punkt_sample_bytes, max(MIN_SAMPLE_BYTES, SAMPLE_SHARE * text_bytes))
    if args.punkt:  # only languages are counted in it
        sample_bytes = MIN_SAMPLE_BYTES
    share = min(1.0, sample_bytes / text_bytes)
    return CorpusPlan(
        files=tuple(files),
        unit_bytes=work_units.choose_unit_bytes(size),
        folders=folders,
        options=args,
        preparation=Preparation(folders.prepared, args, bounds, share),
        withheld_files=tuple(withheld),
        withheld_names=tuple(sorted(map(identify_file, withheld))),
        withheld_corpus=tuple(
            tuple(others[first : first + FILES_TOGETHER])
            for first in range(0, len(others), FILES_TOGETHER)
        ),
        withheld_digest=digest,
        engine=engine,
    )


def list_settings(args: TextConfig) -> dict[str, Any]:
    """Return what decides the bytes of the corpus beside the dump."""
    others = {"input", "output", "max_damaged_files"}
    return {name: v for name, v in args.model_dump().items() if name not in others}


def list_corpus(folder: str) -> tuple[list[str], str]:
    """Return the Parquet files of a finished corpus, and the SHA-256 of its corpus.json."""
    result = storage.join_path(folder, "corpus.json")
    names = [name for name in storage.list_names(folder) if re.fullmatch(CORPUS_FILES, name)]
    files = [storage.join_path(folder, name) for name in names if name.endswith(".parquet")]
    if not files or not storage.exists(result):
        raise UserError("no finished corpus of corpus_job", "withhold_corpus", folder)
    return files, hash_bytes(storage.read_bytes(result))
