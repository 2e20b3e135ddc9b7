r"""Dump + fine-tuned classifier → a label for every review.

    python -m amazon_electra.beam_jobs.scoring_job --input 'dumps/*.json.gz' --model model \
        --output scores

Each record of each file is one row of one file of scores, in order, with its own id: what has no
label keeps its place and says why. The model is a folder of data (beam_jobs/scoring/classifier.py):
a worker needs ONNX Runtime or scikit-learn, and neither torch nor transformers nor model/.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import apache_beam as beam
from typing_extensions import Doc

from amazon_electra.beam_jobs.config import Input, Output, Places, ScoringConfig, list_patterns
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.corpus.prepare import cut_into_units
from amazon_electra.beam_jobs.corpus.result import list_finished
from amazon_electra.beam_jobs.engine.run import run_job, sort_largest_first, start_clock
from amazon_electra.beam_jobs.reading import work_units
from amazon_electra.beam_jobs.scoring.plan import ScoringPlan, plan_scoring
from amazon_electra.beam_jobs.scoring.score_files import ScoreUnits, finish_scores


def score(
    config: ScoringConfig,
    model: Annotated[
        Places,
        Doc(
            "Model folders, from amazon_electra.model.export or from the registry; of several, "
            "each of a task of its own, columns begin with the task: `stars.label`"
        ),
    ],
    input: Input,
    output: Output,
    *,
    beam_options: Sequence[str] = (),
) -> dict[str, Any]:
    """Label every record of a dump, with probabilities. Any Beam option may follow.

    Returns the totals. Raises UserError for a model or dump that cannot be read.
    """
    measure, flags = start_clock(), list(beam_options)
    plan = plan_scoring(config, list_patterns(model), list_patterns(input), str(output), flags)
    units = work_units.estimate_units(plan.files, plan.unit_bytes)
    build, folders = partial(build_scoring_graph, plan=plan), plan.folders
    if staged := run_job(
        "scoring", plan.engine, build, units, lambda: len(list_finished(folders.written))
    ):
        return {"staged": staged}
    totals = finish_scores(plan)
    storage.remove_path(folders.work)
    seconds = measure()["seconds"]
    rate = round(totals["scored"] / max(seconds, 0.001), 1)
    return {**totals, "seconds": seconds, "reviews_per_second": rate}


def build_scoring_graph(pipeline: beam.Pipeline, plan: ScoringPlan) -> None:
    _ = (
        pipeline
        | "List files" >> beam.Create(sort_largest_first(plan.files, lambda file: file.plain_size))
        | "Cut files"
        >> beam.FlatMap(cut_into_units, plan.unit_bytes, plan.folders.cuts, plan.folders.failed)
        | "Spread units" >> beam.Reshuffle()
        | "Score units" >> beam.ParDo(ScoreUnits(plan))
    )


if __name__ == "__main__":
    from amazon_electra.beam_jobs.core.command_line import run_as_command

    run_as_command(score)
