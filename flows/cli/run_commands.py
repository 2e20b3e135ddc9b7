"""`amazon-electra run`, `score` and `study`, which Python calls too: what is given becomes a form.
What they do takes seconds to load: running.py.
"""

import os
from typing import Annotated, Any

from typing_extensions import Doc

from amazon_electra.beam_jobs.core.command_line import make_command
from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.flows.configuration.form import Parameters, Scoring, StudyForm
from amazon_electra.flows.configuration.form_tools import fill_form
from amazon_electra.flows.store.store import Store
from amazon_electra.model.recipes import RECIPES

SHORT = {
    "dump.paths": "--dump",
    "dump.columns": "--columns",
    "dump.labels": "--label",
    "dump.stars_scale": "--stars-scale",
    "pretraining.start_from": "--start-from",
    "finetuning.target_accuracy": "--target-accuracy",
    "finetuning.classes": "--classes",
    "dump.id": "--id",
    "scores.format": "--format",
}
"""Short names of settings, by path."""
StorePlace = Annotated[
    str | None,
    Doc(
        "Folder of the results, or s3://BUCKET/FOLDER or gs://BUCKET/FOLDER; none: "
        "AMAZON_ELECTRA_STORE, else store"
    ),
]
RecipeFile = Annotated[
    str,
    Doc(
        f"Size of the model and length of its training: {', '.join(RECIPES)}, or a YAML file with "
        "sections of settings; auto: sample for sample:N, else published"
    ),
]
DryRun = Annotated[bool, Doc("Print what would be made of what, and which stages are complete")]


def build_store(place: object = None) -> Store:
    """Return the store, which need not be there yet."""
    return Store(str(place or os.environ.get("AMAZON_ELECTRA_STORE") or "store"))


def require_dump(given: dict[str, Any]) -> None:
    """Raise UserError where no dump is named."""
    about = "name the files of your reviews, or sample:20000 for synthetic ones"
    require(given.get("dump", {}).get("paths"), about, "dump.paths")


def run_graph(
    given: Annotated[dict[str, Any], Parameters],
    *,
    recipe: RecipeFile = "auto",
    store: StorePlace = None,
    dry_run: DryRun = False,
) -> dict[str, Any]:
    """Dump → corpus → vocabulary → shards → pre-training → fine-tuning → report. Stages that the
    store has already are not made again; the same command continues an interrupted run.
    """
    from amazon_electra.flows.cli import running

    require_dump(given)
    opened = build_store(store)
    form = fill_form(Parameters, **given, recipe=recipe, store=opened.address)
    return running.print_plan(form, opened) if dry_run else running.execute_graph(form, opened)


def score_dump(
    given: Annotated[dict[str, Any], Scoring],
    *,
    model: Annotated[str | None, Doc("Model folder to use instead of the registry's")] = None,
    output: Annotated[str, Doc("Folder or address for the scores")] = "scores",
    store: StorePlace = None,
) -> dict[str, Any]:
    """Write a row for every record of each file, in order: file, row, id, label, probabilities,
    model version, and the reason if there is no label. A dump that the model has scored before is
    not scored again.
    """
    from amazon_electra.flows.cli import running

    require_dump(given)
    form = fill_form(Scoring, **given, output=output, store=build_store(store).address)
    return running.execute_scoring(form, model)


def run_study(
    name: Annotated[str, Doc("A shipped study, or a YAML file")],
    /,
    given: Annotated[dict[str, Any], StudyForm],
    *,
    recipe: RecipeFile = "sample",
    store: StorePlace = None,
    dry_run: DryRun = False,
) -> None:
    """Run a study: arms × tasks × seeds × settings, in a YAML file. With --dump, ${corpus},
    ${shards} and ${encoder} of the file are made from the dump first, and ${general_shards} from
    the text of --study.general-text; the texts of the other tasks are withheld from all of them.
    The same command continues an interrupted study; after a change it makes only what changed.
    """
    from amazon_electra.flows.cli import running
    from amazon_electra.flows.studies.study_file import load_study

    opened = build_store(store)
    given["study"] = {**given.get("study", {}), "file": name}
    form = fill_form(StudyForm, **given, recipe=recipe, store=opened.address)
    study = load_study(form)
    if study.reads_dump:
        require_dump(given)
    running.execute_study(form, study, opened, dry_run)


run, score = make_command(run_graph, SHORT), make_command(score_dump, SHORT)
study = make_command(run_study, SHORT, left_out=("study.file", "effort", "finetuning", "promotion"))
