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
from amazon_electra.beam_jobs.reading.formats import find_format, strip_endings
from amazon_electra.beam_jobs.reading.ids import add_id_column, list_columns
from amazon_electra.beam_jobs.reading.work_units import DumpFile
from amazon_electra.beam_jobs.scoring.classifier import (
    hash_model,
    name_version,
    read_config,
)
from amazon_electra.beam_jobs.scoring.outputs import choose_ending

COSTLIER = 8  # units are so much smaller than those of a corpus
COMPUTING = 25
"""CPU seconds to score a byte with a network, divided by those to prepare it: from 2 MB on (some
4,000 reviews, 25 s) a worker process on each core gains more than it takes to start.
"""


@dataclass(frozen=True)
class ScoringPlan:
    """What is scored, by which models, and where the scores go."""

    options: ScoringOptions
    tasks: tuple[str, ...]  # of each model
    prefixes: tuple[str, ...]  # what the columns of each model begin with
    answers: tuple[str, ...]  # the columns that a copy of the input has beside its own
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
    tasks = list_tasks(options.model)
    is_alone = options.output_format and len(tasks) == 1
    prefixes = tuple("" if is_alone or not task else f"{task}." for task in tasks)
    answers = name_answers(options, prefixes)
    files = [
        replace(file, layout=find_format(file.layout.name).forget_stars(file.layout))
        for listed in work_units.list_dump_files(options)
        for file in [add_id_column(listed, options.id)]
    ]
    if not options.output_format:
        check_columns(files, answers)
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
        tasks=tasks,
        prefixes=prefixes,
        answers=answers,
        files=tuple(files),
        outputs=tuple(name_outputs(files, options.output_format)),
        unit_bytes=work_units.choose_unit_bytes(plain) // COSTLIER,
        folders=folders,
        engine=beam_options.resolve_beam_options(flags, plain * COMPUTING),
    )


def list_tasks(models: Sequence[str]) -> tuple[str, ...]:
    """Return the task of each model; UserError where one of several has none, or another's."""
    tasks = [shorten_task(read_config(model).amazon_electra.task) for model in models]
    for place, task in enumerate(tasks if len(tasks) > 1 else ()):
        if not task or task in tasks[:place]:
            named = (
                f"two models are of the task {task}" if task else "its config.json names no task"
            )
            raise UserError(f"{named}; score with one at a time", "model", models[place])
    return tuple(tasks)


def name_answers(options: ScoringOptions, prefixes: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that a copy of the input gets."""
    names = []
    for model, prefix in zip(options.model, prefixes, strict=True):
        decides = read_config(model).amazon_electra.decided_from is not None
        own = ["predicted", "probability", *["decision"] * decides, *["because"] * options.explain]
        names += [f"{prefix}{name}" for name in own]
    return tuple(names)


def check_columns(files: Sequence[DumpFile], answers: Sequence[str]) -> None:
    """Raise UserError where a file has a column already that its copy would get."""
    for file in files:
        if taken := {*list_columns(file)} & {*answers}:
            raise UserError(
                f"{file.name} has a column {min(taken)} already; rename it, or write a table of "
                "its own",
                "output_format",
            )


def name_outputs(files: Sequence[DumpFile], table: str | None) -> list[str]:
    """Return `reviews.scores.csv` for reviews.csv.gz, with the ending of a `table` if one is
    written; a name that is taken gets a number.
    """
    members = Counter(file.path for file in files)
    names: dict[str, None] = {}
    for file in files:
        stem = strip_endings(os.path.basename(file.path.rstrip("/")))
        if members[file.path] > 1:  # of a zip file
            stem += "-" + strip_endings(os.path.basename(file.member))
        ending = table or choose_ending(file.layout)
        names[choose_free_name(stem, f".scores.{ending}", names)] = None
    return list(names)
