"""Everything the corpus job will do, decided once from its config before any work begins."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields

from apache_beam.options.pipeline_options import PipelineOptions

from amazon_electra.beam_jobs.config import (
    CORPUS_VERSION,
    CorpusConfig,
    Place,
    Places,
    list_patterns,
)
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.files import hash_bytes
from amazon_electra.beam_jobs.corpus.prepare import Preparation
from amazon_electra.beam_jobs.deduplication.evaluation_texts import identify_file
from amazon_electra.beam_jobs.engine import beam_options
from amazon_electra.beam_jobs.labels.values import CONTRADICTED
from amazon_electra.beam_jobs.reading import work_units
from amazon_electra.beam_jobs.reading.ids import add_id_column
from amazon_electra.beam_jobs.reading.work_units import DumpFile
from amazon_electra.beam_jobs.text import splits

UNIT_NAME = r"\d{4,}-\d{5,}"  # work_units.Unit.name, and what it was in earlier versions
WORK_NAME = "_work-[0-9a-f]{16}"  # folder in which a job keeps what it has done, until it ends
CORPUS_FILES = rf"corpus-{UNIT_NAME}\.parquet|(corpus|punkt)\.json"
LINES = ("rejects", CONTRADICTED)  # folders of a corpus with a file of JSON lines a unit
# of text to train Punkt on: a byte costs four times what one of a review costs on all its way
MIN_SAMPLE_BYTES, MAX_SAMPLE_BYTES, SAMPLE_SHARE = 250_000, 1_000_000, 0.01
TEXT_SHARE = 0.5  # of a dump's bytes, about: the rest are names of fields and identifiers
FILES_TOGETHER = 16  # of another corpus, whose held-out texts one worker writes to one file


@dataclass(frozen=True)
class Folders:
    """The output folder of a run and, below its work folder, what is removed when it is done."""

    output: str
    work: str
    cuts: str
    prepared: str
    written: str
    others: str  # runs of texts that are held out and are no reviews of the dump
    matches: str  # what reviews share with held-out texts, and with one another
    failed: str  # why units failed
    languages: str  # file of reviews of the sample by language

    @classmethod
    def of_job(cls, output: str, *content: object) -> "Folders":
        """Return the folders of a job; one with the same `content` continues what is there."""
        work = storage.join_path(output, f"_work-{hash_bytes(repr(content).encode())[:16]}")
        return cls(output, work, *(storage.join_path(work, one.name) for one in fields(cls)[2:]))

    def clear_other_runs(self, results: str) -> None:
        """Remove what another job (names like `results`) or failed writers of this one left."""
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
    config: CorpusConfig
    preparation: Preparation
    punkt: str | None  # parameters that are used, in place of trained ones
    withheld_files: tuple[str, ...]
    withheld_names: tuple[str, ...]  # names and digests of these, which workers may not have
    withheld_corpus: tuple[str, ...]  # files of the corpus whose dev and test reviews are withheld
    withheld_digest: str  # SHA-256 of its corpus.json; "" without one
    engine: PipelineOptions


def plan_corpus(
    config: CorpusConfig,
    input: Places,
    output: Place,
    withhold: Places = (),
    withhold_corpus: Place | None = None,
    punkt: Place | None = None,
    beam_flags: Sequence[str] = (),
) -> CorpusPlan:
    """Return the plan of a job; UserError for inputs or an output that cannot be used."""
    if punkt:
        from amazon_electra.beam_jobs.text.punkt import read_punkt

        read_punkt(str(punkt))
    listed = work_units.list_dump_files(config, list_patterns(input), config.labels)
    files = [add_id_column(file, config.id) for file in listed]
    work_units.check_split_field(config.split_by, files)
    storage.check_output(str(output), [file.path for file in files])
    withheld = storage.list_files(list_patterns(withhold), "withhold")
    others, digest = list_corpus(str(withhold_corpus)) if withhold_corpus else ([], "")
    identity = [
        *dict.fromkeys(file.identity for file in files),
        *map(storage.describe_identity, [*withheld, *others]),
    ]
    places = (str(place) if place else None for place in (withhold_corpus, punkt))
    given = CORPUS_VERSION, identity, config.model_dump(), *places
    folders = Folders.of_job(str(output), *given)
    size = sum(file.plain_size for file in files)
    text_bytes = 1 + size * TEXT_SHARE
    most = MIN_SAMPLE_BYTES if punkt else MAX_SAMPLE_BYTES  # then only to count languages
    sample_bytes = min(most, max(MIN_SAMPLE_BYTES, SAMPLE_SHARE * text_bytes))
    bounds, share = splits.parse_shares(config.split), min(1.0, sample_bytes / text_bytes)
    withholds = bool(bounds[1] < 1 or withheld or others)
    return CorpusPlan(
        files=tuple(files),
        unit_bytes=work_units.choose_unit_bytes(size),
        folders=folders,
        config=config,
        preparation=Preparation(folders.prepared, folders.failed, config, bounds, share, withholds),
        punkt=str(punkt) if punkt else None,
        withheld_files=tuple(withheld),
        withheld_names=tuple(sorted(map(identify_file, withheld))),
        withheld_corpus=tuple(others),
        withheld_digest=digest,
        engine=beam_options.resolve_beam_options(list(beam_flags), size),
    )


def list_corpus(folder: str) -> tuple[list[str], str]:
    """Return the Parquet files of a finished corpus, and the SHA-256 of its corpus.json."""
    result = storage.join_path(folder, "corpus.json")
    names = [name for name in storage.list_names(folder) if re.fullmatch(CORPUS_FILES, name)]
    files = [storage.join_path(folder, name) for name in names if name.endswith(".parquet")]
    is_finished = files and storage.exists(result)
    require(is_finished, "no finished corpus of corpus_job", "withhold_corpus", folder)
    return files, hash_bytes(storage.read_bytes(result))
