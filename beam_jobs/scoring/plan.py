"""Everything the scoring job will do, decided once from its options before any work begins."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from apache_beam.options.pipeline_options import PipelineOptions

from amazon_electra.beam_jobs.config import SCORES_VERSION, ScoringOptions
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import choose_free_name
from amazon_electra.beam_jobs.corpus import plan as corpus_plan
from amazon_electra.beam_jobs.corpus.plan import WORK_NAME, Folders
from amazon_electra.beam_jobs.engine import beam_options
from amazon_electra.beam_jobs.model_folder.config import shorten_task
from amazon_electra.beam_jobs.reading import work_units
from amazon_electra.beam_jobs.reading.formats import strip_endings
from amazon_electra.beam_jobs.reading.ids import add_id_column
from amazon_electra.beam_jobs.reading.work_units import DumpFile
from amazon_electra.beam_jobs.scoring.classifier import (
    hash_model,
    name_version,
    read_config,
)

COSTLIER = 8  # units are so much smaller than those of a corpus
COMPUTING = 25
"""CPU seconds to score a byte with a network, divided by those to prepare it: from 2 MB on (some
4,000 reviews, 25 s) a worker process on each core gains more than it takes to start.
"""


@dataclass(frozen=True)
class ScoringPlan:
    """What is scored, by which models, and where the scores go."""

    options: ScoringOptions
    prefixes: tuple[str, ...]  # what the columns of each model begin with
    files: tuple[DumpFile, ...]
    outputs: tuple[str, ...]  # name of the file of scores of each
    unit_bytes: int
    folders: Folders
    engine: PipelineOptions


def plan_scoring(options: ScoringOptions, flags: list[str]) -> ScoringPlan:
    """Return the plan of a job with these options and these flags of Beam.

    Raises UserError for a model or dump that cannot be read, and an output that cannot be written.
    """
    models = [hash_model(model, options.precision) for model in options.model]
    prefixes = name_columns(options.model)
    files = [
        replace(file, layout=replace(file.layout, labels="unknown"))
        for listed in work_units.list_dump_files(options)
        for file in [add_id_column(listed, options.id)]
    ]
    storage.check_output(options.output, [file.path for file in files])
    dump = dict.fromkeys(file.identity for file in files)
    if not options.model_version:
        versions = tuple(name_version(model, options.precision) for model in options.model)
        options = options.model_copy(update={"model_version": versions})
    if len(options.model_version) != len(options.model):
        raise UserError(f"give one for each of {len(options.model)} models", "model_version")
    settings = sorted(corpus_plan.list_settings(options).items())
    folders = Folders.of_job(options.output, [SCORES_VERSION, *models, *dump, *settings])
    plain = sum(file.plain_size for file in files)
    folders.clear_other_runs(WORK_NAME)  # the scores of other dumps stay
    return ScoringPlan(
        options=options,
        prefixes=prefixes,
        files=tuple(files),
        outputs=tuple(name_outputs(files, options.output_format)),
        unit_bytes=work_units.choose_unit_bytes(plain) // COSTLIER,
        folders=folders,
        engine=beam_options.resolve_beam_options(flags, plain * COMPUTING),
    )


def name_columns(models: Sequence[str]) -> tuple[str, ...]:
    """Return what the columns of each model begin with: nothing of one, its task of several.

    UserError where two are of the same task.
    """
    tasks = [shorten_task(read_config(model).amazon_electra.task) for model in models]
    if len(tasks) == 1:
        return ("",)
    for place, task in enumerate(tasks):
        if not task or task in tasks[:place]:
            named = (
                f"two models are of the task {task}" if task else "its config.json names no task"
            )
            raise UserError(f"{named}; score with one at a time", "model", models[place])
    return tuple(f"{task}." for task in tasks)


def name_outputs(files: Sequence[DumpFile], ending: str) -> list[str]:
    """Return `reviews.scores.parquet` for reviews.csv.gz; a name that is taken gets a number."""
    members = Counter(file.path for file in files)
    names: dict[str, None] = {}
    for file in files:
        stem = strip_endings(os.path.basename(file.path.rstrip("/")))
        if members[file.path] > 1:  # of a zip file
            stem += "-" + strip_endings(os.path.basename(file.member))
        names[choose_free_name(stem, f".scores.{ending}", names)] = None
    return list(names)
