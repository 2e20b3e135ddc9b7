"""Everything the scoring job will do, decided once from its options before any work begins."""

import json
from dataclasses import dataclass

from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.config import ScoringOptions
from beam_jobs.core import storage
from beam_jobs.core.errors import UserError
from beam_jobs.core.files import hash_bytes
from beam_jobs.corpus import plan as corpus_plan
from beam_jobs.corpus.plan import UNIT_NAME, Folders
from beam_jobs.corpus.prepare import Preparation
from beam_jobs.engine import beam_options
from beam_jobs.reading import work_units
from beam_jobs.reading.work_units import DumpFile
from beam_jobs.scoring.classifier import check_digest

SCORE_FILES = rf"scores-{UNIT_NAME}\.parquet"
"""Pattern of the files of finished scores."""
SCORER_FILES = ("scorer.pt2", "scorer.json", "tokenizer.json")


@dataclass(frozen=True)
class ScoringPlan:
    """What is scored, by which classifier, and where the scores go."""

    options: ScoringOptions
    files: tuple[DumpFile, ...]
    unit_bytes: int
    folders: Folders
    preparation: Preparation
    engine: PipelineOptions

    @property
    def expected_units(self) -> int:
        return sum(work_units.estimate_units(file, self.unit_bytes) for file in self.files)


def plan_scoring(options: ScoringOptions, flags: list[str]) -> ScoringPlan:
    """Return the plan of a job with these options and these flags of Beam.

    Raises UserError for a scorer or dump that cannot be read, and an output that cannot be written.
    """
    check_scorer(options.scorer, options.scorer_sha256)
    files = work_units.list_dump_files(options)
    storage.check_output(options.output, [file.path for file in files])
    work = f"_work-{compute_fingerprint(options, files)}"
    folders = Folders(options.output, storage.join_path(options.output, work))
    return ScoringPlan(
        options=options,
        files=tuple(files),
        unit_bytes=work_units.choose_unit_bytes(files),
        folders=folders,
        preparation=corpus_plan.plan_text_preparation(options, folders),
        engine=beam_options.resolve_beam_options(flags, sum(file.plain_size for file in files)),
    )


def check_scorer(folder: str, sha256: str = "") -> None:
    """Raise a UserError for a folder that is no scorer, or whose program is not the one written.

    `sha256` is the digest the program must have; without it scorer.json's counts.
    """
    for name in SCORER_FILES:
        if not storage.exists(storage.join_path(folder, name)):
            raise UserError(
                f"--scorer {folder}: has no {name}; `python -m model.scorer` makes such a folder"
            )
    try:
        settings = json.loads(storage.read_bytes(storage.join_path(folder, "scorer.json")))
        if not (isinstance(settings["max_length"], int) and settings["labels"]):
            raise ValueError("no labels")
        digest = settings["sha256"]
    except (ValueError, LookupError, TypeError) as error:
        raise UserError(
            f"--scorer {folder}: scorer.json is not what `python -m model.scorer` writes ({error})"
        ) from None
    check_digest(
        folder, storage.hash_file(storage.join_path(folder, "scorer.pt2")), sha256 or digest
    )


def compute_fingerprint(options: ScoringOptions, files: list[DumpFile]) -> str:
    """Return 16 hex digits of everything that decides the scores.

    An interrupted run is continued only by the same job.
    """
    scorer = storage.hash_file(storage.join_path(options.scorer, "scorer.pt2"))
    dump = map(storage.describe_identity, dict.fromkeys(file.path for file in files))
    content = [scorer, *dump, *sorted(corpus_plan.list_settings(options).items())]
    return hash_bytes(repr(content).encode())[:16]
