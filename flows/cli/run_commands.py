"""`amazon-electra run` and `score`: a model of a dump, and labels for one."""

import json
import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, Any

from typing_extensions import Doc

from amazon_electra.beam_jobs.core.command_line import make_command
from amazon_electra.beam_jobs.core.errors import JobFailed, UserError
from amazon_electra.beam_jobs.core.progress import format_count
from amazon_electra.beam_jobs.core.storage import is_remote
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.flows.cli import terminal
from amazon_electra.flows.cli.stores import (
    SHORT,
    DryRun,
    StorePlace,
    build_store,
    open_store,
    require_dump,
)
from amazon_electra.flows.configuration.form import Dump, Parameters, Scoring
from amazon_electra.flows.configuration.form_tools import fill_form
from amazon_electra.flows.dumps import preview
from amazon_electra.flows.plan import RunPlan, plan_run, planned
from amazon_electra.flows.servers import prefect_server
from amazon_electra.flows.servers.access import restrict_store
from amazon_electra.flows.stages import scores as scoring
from amazon_electra.flows.stages.dump import ListedDump, build_dump_stage, list_files
from amazon_electra.flows.store.group import list_stages
from amazon_electra.flows.store.stage import Resources
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.store.usage import has_finished_run, read_registered
from amazon_electra.flows.ui.plan_page import format_total, list_lines
from amazon_electra.model.recipes import RECIPES
from amazon_electra.model.report.owner import list_short_answers

SHOWN_LANGUAGES = 4


def run_graph(
    given: Annotated[dict[str, Any], Parameters],
    *,
    recipe: Annotated[
        str,
        Doc(
            f"Size of the model and length of its training: {', '.join(RECIPES)}, or a YAML file "
            "with sections of settings; auto: sample for sample:N, else published, which starts "
            "from --start-from or an installed MiniLM"
        ),
    ] = "auto",
    store: StorePlace = None,
    dry_run: DryRun = False,
) -> None:
    """Dump → corpus → vocabulary → shards → pre-training → fine-tuning → report. Stages that the
    store has already are not made again; the same command continues an interrupted run.
    """
    require_dump(given)
    opened = build_store(store, dry_run)
    form = fill_form(Parameters, **given, recipe=recipe, store=opened.address)
    if dry_run:
        print_plan(form, opened)
    else:
        restrict_store(opened.root)
        execute_graph(form, opened)


def print_plan(form: Parameters, store: Store) -> None:
    """Print the files of the dump, the settings that are not the default as JSON (Prefect takes
    it as `--params`), then a line per stage and what the run does of itself, with the reasons.
    """
    os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
    from amazon_electra.flows import domain_adaptation

    plan = plan_run(form, store)
    print_files(form.dump, plan.previews)
    stages = list_stages(domain_adaptation.graph(plan), store)
    print(f"settings  {json.dumps(form.model_dump(exclude_defaults=True))}")
    print("\n".join([*list_lines(stages), *(f"note: {note}" for note in plan.notes)]))


def print_files(chosen: Dump, previews: Sequence[preview.Preview]) -> None:
    """Print what each file of a dump holds, by its first records."""
    scale, about_scale = preview.find_scale(previews, chosen.stars_scale)
    for file in previews:
        print("\n".join(preview.describe_file(file, scale, chosen.fold_labels)))
    if about_scale:
        print(about_scale)
    if not chosen.repair_mojibake and (line := preview.describe_mojibake(previews)):
        print(line)
    languages = preview.count_languages(previews)
    total = sum(languages.values())
    shown = [f"{name} {n / total:.0%}" for name, n in languages.items() if n / total >= 0.005]
    if shown:
        print(f"languages {', '.join(shown[:SHOWN_LANGUAGES])}")


def print_scored_files(form: Scoring, dump: ListedDump) -> None:
    """Print what each file of a dump to score holds, and of ids that occur several times."""
    previews = preview.read_previews(form.dump, dump)
    print_files(form.dump, previews)
    for file in previews:
        if line := preview.describe_ids(file, form.dump.id):
            print(line)


def execute_graph(form: Parameters, store: Store) -> dict[str, Any]:
    """Run the graph here; print what came out and where it is, and return the paths."""
    store.check_access()
    plan = plan_run(form, store)

    def run() -> dict[str, Any]:
        from amazon_electra.flows.domain_adaptation import domain_adaptation

        planned.set(begun)
        return domain_adaptation(**{name: getattr(form, name) for name in Parameters.model_fields})

    began = time.monotonic()
    made = {}
    if has_finished_run(store, plan.dump):
        # apart: Prefect keeps the settings with which it was imported, those of no server
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as apart:
            made = apart.submit(show_finished, form, plan).result()
    begun = plan if made else plan.begin()  # the corpus, while Prefect's server starts
    made = made or terminal.run_in_terminal(store.root, run, form.promotion.mode != "off")
    terminal.print_results(Path(made["folder"]))
    up = prefect_server.find_running_servers(store.root)
    how = f"amazon-electra up --store {store.address}"
    print(f"report      {made['report']}")
    for task, model in made["models"].items():
        about = f", {task}" if len(made["models"]) > 1 else ""
        print(f"model       {model}{about}")
        for name, answer in list_short_answers(Path(model)):
            print(f"{name:11} {answer}")
    for became in made.get("registered", "").splitlines():
        print(f"registered  {became}")
    print(f"Prefect UI  {up.get('prefect') or how}")
    print(f"MLflow UI   {up.get('mlflow') or how}")
    print(f"done in     {time.monotonic() - began:,.1f} s")
    if failed := made.get("failed"):
        what, why = next(iter(failed.items()))
        raise JobFailed(f"{len(failed)} failed, the model is the best of the others: {what}: {why}")
    if made.get("stopped"):
        print(f"stopped     the best so far: {' '.join(made['models'].values())}")
    return made


def show_finished(form: Parameters, plan: RunPlan) -> dict[str, Any]:
    """Show a run again whose stages are all complete, and of which MLflow has all; return the paths
    of what it made, empty where something is to do.
    """
    from amazon_electra.flows.domain_adaptation import graph
    from amazon_electra.flows.runs.graph_run import list_results

    store = plan.store
    try:
        stages = list_stages(graph(plan), store)
    except Exception:  # raised again where the run itself comes upon it
        return {}
    last = stages[-1][0]
    registered = read_registered(store, last, form.promotion.model_dump())
    if registered is None or not all(is_complete for _, is_complete in stages):
        return {}
    with terminal.Terminal() as shown:
        shown.print_line(format_total(stages))
        for stage, _ in stages:
            if manifest := store.manifest(stage):
                shown.on_complete(stage, manifest, found=True)
    made = list_results(store, [stage for stage, _ in stages], last)
    return made | {"registered": registered}


def score_dump(
    given: Annotated[dict[str, Any], Scoring],
    *,
    model: Annotated[str | None, Doc("Model folder to use instead of the registry's")] = None,
    output: Annotated[str, Doc("Folder or address for the scores")] = "scores",
    store: StorePlace = None,
    dry_run: DryRun = False,
) -> None:
    """Write a row for every record of each file, in order: file, row, id, label, probabilities,
    model version, and the reason if there is no label. Files that the model has scored before are
    not scored again.
    """
    require_dump(given)
    if model and "alias" in given.get("model", {}):
        raise UserError("give a folder or an alias of the registry", "model", model)
    output = output if is_remote(output) else str(Path(output).absolute())
    form = fill_form(Scoring, **given, output=output, store=build_store(store).address)
    if model:
        (print_folder_plan if dry_run else score_with_folder)(model, form)
        return
    if not dry_run:
        label_dump(form)
        return
    opened = Store(open_store(store).address, is_dry=True)
    dump = build_dump_stage(form.dump, opened)  # refuses wrong paths
    models = scoring.find_models(form, opened)
    print_scored_files(form, dump)
    print_scoring_plan(form, dump, models, opened)


def label_dump(form: Scoring) -> dict[str, Any]:
    """Label the records of a dump with a model of the registry; return folder and files."""
    store = Store(form.store)
    store.check_presence()
    build_dump_stage(form.dump, store)  # refuses wrong paths at once
    scoring.find_models(form, store)

    def run() -> dict[str, Any]:
        from amazon_electra.flows.score import score

        return score(**{name: getattr(form, name) for name in type(form).model_fields})

    made = terminal.run_in_terminal(store.root, run)
    print(f"models      {made['models']}")
    print(f"scores      {made['folder']}: {format_count(len(made['files']), 'file')}")
    show_drift(made["results"])
    return made


def print_folder_plan(model: str, form: Scoring) -> None:
    """Print the files of the dump, the model folder and where the scores would go."""
    from amazon_electra.beam_jobs.scoring.classifier import name_version

    version = name_version(model, form.model.precision)
    dump = build_dump_stage(form.dump, Store(form.store, is_dry=True))
    print_scored_files(form, dump)
    print(f"model     {model}, version {version}")
    print(f"scores    {form.output}, not written: this is a dry run")


def score_with_folder(model: str, form: Scoring) -> dict[str, Any]:
    """Label the records of a dump with a model folder: neither a server nor a store is needed.
    Return the totals.
    """
    from amazon_electra.beam_jobs import scoring_job

    store = Store(form.store)
    paths = [
        str(path)
        for given in form.dump.paths
        for path in ([given] if is_remote(given) else list_files(given, store))
    ]
    config = scoring.build_config((), form)
    options = Resources(workers=form.model.workers).beam_options
    made = scoring_job.score(config, model, paths, form.output, beam_options=options)
    print(f"scores      {form.output}: {made['scored']:,} of {made['read']:,} records have a label")
    for reason, records in made["unscored"].items():
        print(f"            {records:,} {reason}")
    show_drift(made["files"])
    for warning in made.get("warnings", ()):
        print(f"warning: {warning}")
    return made


def show_drift(files: Sequence[dict[str, Any]]) -> None:
    """Print whether the model still holds for files that were scored, where that is known."""
    if line := scoring.describe_drift(files):
        print(f"drift       {line}")


def print_scoring_plan(
    form: Scoring, dump: ListedDump, models: Sequence[scoring.RegisteredModel], store: Store
) -> None:
    """Print the model, the settings that are not the default as JSON, then a line per stage."""
    new = scoring.leave_out_files(dump, scoring.find_scores(models, form, store))
    print(f"models    {scoring.describe_models(models)}")
    print(f"settings  {json.dumps(form.model_dump(exclude_defaults=True))}")
    print("\n".join(list_lines(list_stages(scoring.graph(models, form, dump, new), store))))


run = make_command(run_graph, SHORT)
score = make_command(score_dump, SHORT)
