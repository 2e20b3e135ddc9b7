"""Everything the scoring job will do, decided once from its options before any work begins."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.config import ScoringOptions
from beam_jobs.core import storage
from beam_jobs.core.errors import UserError
from beam_jobs.core.files import choose_free_name
from beam_jobs.corpus import plan as corpus_plan
from beam_jobs.corpus.plan import WORK_NAME, Folders
from beam_jobs.engine import beam_options
from beam_jobs.reading import detection, fields, work_units
from beam_jobs.reading.lines import LIST, check_lists, name_list
from beam_jobs.reading.work_units import DumpFile
from beam_jobs.scoring.classifier import hash_model

COSTLIER = 8
"""Times what preparing a byte takes that scoring it takes, at least: units are so much smaller, and
worker processes pay for dumps so much smaller.
"""
ENDINGS = re.compile(
    r"(\.(json|jsonl|ndjson|csv|tsv|txt|parquet|pq))?(\.(gz|bz2|zst|zip))?$", re.IGNORECASE
)
"""Of a dump's name, which the name of its scores leaves out."""
ID_NAMES = ("id", "uuid", "guid", "recordid", "rowid")
"""Of a column with ids of the records: in small letters, without separators and `review`."""
ID = "id"
"""Key of that column in a layout's mapping, beside the fields of a review."""


@dataclass(frozen=True)
class ScoringPlan:
    """What is scored, by which model, and where the scores go."""

    options: ScoringOptions
    files: tuple[DumpFile, ...]
    outputs: tuple[str, ...]
    """Name of the file of scores of each."""
    unit_bytes: int
    folders: Folders
    engine: PipelineOptions


def plan_scoring(options: ScoringOptions, flags: list[str]) -> ScoringPlan:
    """Return the plan of a job with these options and these flags of Beam.

    Raises UserError for a model or dump that cannot be read, and an output that cannot be written.
    """
    model = hash_model(options.model, options.precision)
    files = [add_id_column(file, options.id) for file in work_units.list_dump_files(options)]
    storage.check_output(options.output, [file.path for file in files])
    dump = dict.fromkeys(file.identity for file in files)
    settings = sorted(corpus_plan.list_settings(options).items())
    folders = Folders.of_job(options.output, [corpus_plan.WORK_VERSION, model, *dump, *settings])
    plain = sum(file.plain_size for file in files)
    folders.clear_other_runs(WORK_NAME)  # the scores of other dumps stay
    return ScoringPlan(
        options=options,
        files=tuple(files),
        outputs=tuple(name_outputs(files, options.output_format)),
        unit_bytes=work_units.choose_unit_bytes(plain) // COSTLIER,
        folders=folders,
        engine=beam_options.resolve_beam_options(flags, plain * COSTLIER),
    )


def add_id_column(file: DumpFile, given: str) -> DumpFile:
    """Return a file whose records are read with the column of their ids, if there is one.

    Raises UserError for a given column that the file does not have.
    """
    layout = file.layout
    columns = list(layout.columns) or [
        *sorted(layout.read_columns),
        *(name for name, _ in layout.unused),
    ]
    if layout.name == "parquet":
        record = detection.read_parquet_columns(file.path)
        columns = [*record, *detection.list_nested_names(record)]
    given = given.removeprefix(f"{layout.records}{LIST}.")
    is_listed = layout.name == "parquet" or len(layout.unused) < fields.MAX_LISTED_COLUMNS
    if given and columns and is_listed and given not in columns:
        raise UserError(
            f"--id {given}: {file.name} has no such column; it has {', '.join(sorted(columns))}"
        )
    start = name_list(dict(layout.mapping).get("text", ""))
    inside = [name for name in reversed(columns) if name_list(name) == start]
    named = {fields.strip_column_name(name.removeprefix(start)): name for name in inside}
    column = given or next((named[name] for name in ID_NAMES if name in named), "")
    mapping = (*layout.mapping, (ID, column)) if column else layout.mapping
    check_lists((name for _, name in mapping), file.name)
    return replace(file, layout=replace(layout, mapping=mapping, labels="unknown"))


def name_outputs(files: Sequence[DumpFile], ending: str) -> list[str]:
    """Return `reviews.scores.parquet` for reviews.csv.gz; a name that is taken gets a number."""
    members = Counter(file.path for file in files)
    names: dict[str, None] = {}
    for file in files:
        stem = ENDINGS.sub("", os.path.basename(file.path.rstrip("/")))
        if members[file.path] > 1:  # of a zip file
            stem += "-" + ENDINGS.sub("", os.path.basename(file.member))
        names[choose_free_name(stem, f".scores.{ending}", names)] = None
    return list(names)
