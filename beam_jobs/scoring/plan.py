"""Everything the scoring job will do, decided once from its options before any work begins."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from apache_beam.options.pipeline_options import PipelineOptions

from amazon_electra.beam_jobs.config import SCORES_VERSION, ScoringConfig
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.files import choose_free_name
from amazon_electra.beam_jobs.corpus.plan import WORK_NAME, Folders
from amazon_electra.beam_jobs.engine import beam_options
from amazon_electra.beam_jobs.model_folder.config import shorten_task
from amazon_electra.beam_jobs.reading import work_units
from amazon_electra.beam_jobs.reading.formats import strip_endings
from amazon_electra.beam_jobs.reading.ids import add_id_column, list_columns
from amazon_electra.beam_jobs.reading.work_units import DumpFile
from amazon_electra.beam_jobs.scoring.classifier import hash_model, open_folder
from amazon_electra.beam_jobs.scoring.outputs import find_copy_ending

COSTLIER = 8  # units are so much smaller than those of a corpus
COMPUTING = 25  # CPU seconds to score a byte with a network, divided by those to prepare it


@dataclass(frozen=True)
class ScoringPlan:
    """What is scored, by which models, and where the scores go."""

    config: ScoringConfig
    models: tuple[str, ...]  # folders
    versions: tuple[str, ...]  # of each
    tasks: tuple[str, ...]  # of each model
    prefixes: tuple[str, ...]  # what the columns of each model begin with
    answers: tuple[str, ...]  # the columns that a copy of the input has beside its own
    files: tuple[DumpFile, ...]
    outputs: tuple[str, ...]  # name of the file of scores of each
    unit_bytes: int
    folders: Folders
    engine: PipelineOptions


def plan_scoring(
    config: ScoringConfig,
    models: Sequence[str],
    input: Sequence[str],
    output: str,
    beam_flags: Sequence[str] = (),
) -> ScoringPlan:
    """Return the plan of a job; UserError for a model, dump or output that cannot be used."""
    digests = [hash_model(model, config.precision) for model in models]
    details = [open_folder(model).read_config().amazon_electra for model in models]
    tasks = [shorten_task(one.task) for one in details]
    for place, task in enumerate(tasks if len(tasks) > 1 else ()):
        why = f"is of the task {task}, too" if task else "names no task in its config.json"
        is_own = task and task not in tasks[:place]
        require(is_own, f"{why}; score with one at a time", "model", models[place])
    is_alone = config.output_format and len(tasks) == 1
    prefixes = ["" if is_alone or not task else f"{task}." for task in tasks]
    answers = list[str]()
    for prefix, one in zip(prefixes, details, strict=True):
        names = ["predicted", "probability", *["decision"] * (one.decided_from is not None)]
        answers += [f"{prefix}{name}" for name in [*names, *["because"] * config.explain]]
    listed = work_units.list_dump_files(config, input)
    files = [add_id_column(file, config.id) for file in listed]
    for file in () if config.output_format else files:
        taken = min({*list_columns(file)} & {*answers}, default="")
        why = f"{file.name} has a column {taken} already; rename it, or write a table of its own"
        require(not taken, why, "output_format")
    storage.check_output(output, [file.path for file in files])
    versions = config.model_version or tuple(digest[:16] for digest in digests)
    is_each = len(versions) == len(models)
    require(is_each, f"give one for each of {len(models)} models", "model_version")
    dump = [*dict.fromkeys(file.identity for file in files)]
    settings = config.model_dump()
    folders = Folders.of_job(output, SCORES_VERSION, digests, versions, dump, settings)
    plain = sum(file.plain_size for file in files)
    folders.clear_other_runs(WORK_NAME)  # the scores of other dumps stay
    return ScoringPlan(
        config=config,
        models=tuple(models),
        versions=versions,
        tasks=tuple(tasks),
        prefixes=tuple(prefixes),
        answers=tuple(answers),
        files=tuple(files),
        outputs=tuple(name_outputs(files, config.output_format)),
        unit_bytes=work_units.choose_unit_bytes(plain) // COSTLIER,
        folders=folders,
        engine=beam_options.resolve_beam_options(list(beam_flags), plain * COMPUTING),
    )


def name_outputs(files: Sequence[DumpFile], table: str | None) -> list[str]:
    """Return `reviews.scores.csv` for reviews.csv.gz, with a number where a name is taken."""
    members = Counter(file.path for file in files)
    names: dict[str, None] = {}
    for file in files:
        stem = strip_endings(os.path.basename(file.path.rstrip("/")))
        if members[file.path] > 1:  # of a zip file
            stem += "-" + strip_endings(os.path.basename(file.member))
        ending = table or find_copy_ending(file.layout) or "csv"
        names[choose_free_name(stem, f".scores.{ending}", names)] = None
    return list(names)
