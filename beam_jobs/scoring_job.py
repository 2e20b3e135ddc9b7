"""Dump + fine-tuned classifier → a label for every review.

    python -m beam_jobs.scoring_job --input 'dumps/*.json.gz' --scorer scorer --output scores

The classifier comes as one exported program (`python -m model.scorer`), so a worker needs torch
and tokenizers beside what the corpus job needs, and neither transformers nor model/. The one job
that needs torch: its workers have an image of their own. The text of a unit is read, scored and
dropped where it is; only names and counts travel between steps.

A scorer is a program: it is loaded only if scorer.pt2 has the SHA-256 that its scorer.json records,
and a folder from elsewhere runs with the rights of the job. Score only with what you made.
"""

import time
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.ml.inference.base import RunInference

from beam_jobs.config import ScoringOptions
from beam_jobs.core.command import main
from beam_jobs.core.progress import track_progress
from beam_jobs.core.settings import read_known_options
from beam_jobs.corpus.prepare import prepare_unit
from beam_jobs.corpus.result import list_finished
from beam_jobs.engine import beam_options
from beam_jobs.engine.run import run_beam_graph
from beam_jobs.reading import work_units
from beam_jobs.scoring.classifier import UnitScorer
from beam_jobs.scoring.plan import SCORE_FILES, ScoringPlan, plan_scoring
from beam_jobs.scoring.score_files import finish_scores, write_scores

DESCRIPTION = "A label and its probability for every review; any Beam option may follow."


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Score the dump; return the totals, or what was staged."""
    started = time.monotonic()
    options, flags = read_known_options(ScoringOptions, argv, "scoring_job", DESCRIPTION)
    plan = plan_scoring(options, flags)
    engine, folders = beam_options.describe_engine(plan.engine), plan.folders
    folders.clear_other_runs(SCORE_FILES)
    with track_progress(plan.expected_units, "units", f"scoring ({engine})") as bar:
        run_beam_graph(
            plan.engine,
            partial(build_scoring_graph, plan=plan),
            folders.output,
            lambda: bar.update(len(list_finished(folders.written))),
        )
        if beam_options.is_staged_only(plan.engine):
            return {"staged": engine}
        totals = finish_scores(folders, options.max_damaged_files)
    seconds = time.monotonic() - started
    return {
        **totals,
        "seconds": round(seconds, 3),
        "reviews_per_second": round(totals["scored"] / seconds, 1),
    }


def build_scoring_graph(pipeline: beam.Pipeline, plan: ScoringPlan) -> None:
    """Cut the dump into units; prepare, score and write each."""
    folders = plan.folders
    _ = (
        pipeline
        | "List files" >> beam.Create(plan.files)
        | "Cut files" >> beam.FlatMap(work_units.cut_file, plan.unit_bytes, folders.cuts)
        | "Spread units" >> beam.Reshuffle()
        | "Prepare units" >> beam.Map(prepare_unit, plan.preparation)
        | "Score units"
        >> RunInference(
            UnitScorer(plan.options.scorer, folders.prepared, plan.options.scorer_sha256)
        )
        | "Write scores" >> beam.Map(write_scores, folders, plan.options.model_version)
    )


if __name__ == "__main__":
    main(run)
