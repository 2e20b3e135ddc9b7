"""`amazon-electra run` and `score`: a model of a dump, and labels for one."""

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.progress import format_count
from amazon_electra.beam_jobs.core.settings import OptionParser
from amazon_electra.beam_jobs.core.storage import is_remote
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.beam_jobs.reading.label_values import describe_contradictions
from amazon_electra.flows.cli import terminal
from amazon_electra.flows.cli.options import (
    add_command,
    add_dump_options,
    add_setting_option,
    add_start_option,
    build_store,
    open_store,
    require_dump,
)
from amazon_electra.flows.configuration.form import (
    Corpus,
    Dump,
    Parameters,
    Scores,
    Scoring,
    spell_for_commands,
)
from amazon_electra.flows.configuration.form_tools import fill_form
from amazon_electra.flows.dumps import expected_corpus, labels, preview
from amazon_electra.flows.runner.stage_runner import Plan
from amazon_electra.flows.runs.finished import read_finished
from amazon_electra.flows.servers import prefect_server
from amazon_electra.flows.stages import scores as scoring
from amazon_electra.flows.stages.arms import MIN_FINETUNED, is_effort_automatic
from amazon_electra.flows.stages.contrastive_adaptation import MIN_TITLES
from amazon_electra.flows.stages.dump import ListedDump, build_dump_stage, list_dump, list_files
from amazon_electra.flows.stages.origin import describe_origin, make_origin
from amazon_electra.flows.stages.pretraining import MIN_TOKENS, PASSES
from amazon_electra.flows.stages.text_length import foretell_length
from amazon_electra.flows.store.stage import Resources, Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.ui.plan_page import format_total, list_lines
from amazon_electra.model.encoders.known import warn_of_languages
from amazon_electra.model.recipes import RECIPES
from amazon_electra.model.report.owner import list_short_answers

SHOWN_LANGUAGES = 4


def add_run_options(run: OptionParser) -> None:
    add_command(
        run,
        run_from_arguments,
        "Dump → corpus → vocabulary → shards → pre-training → fine-tuning → report. Stages that "
        "the store has already are not made again; the same command continues an interrupted run.",
    )
    add_dump_options(run, "pretraining.steps=500 or finetuning.seeds=0,1")
    add_start_option(run)
    run.shortcuts |= {"recipe": "--recipe", "effort": "--effort"}
    run.add_argument(
        "--recipe",
        metavar="NAME|FILE",
        help=f"size of the model and length of its training: {', '.join(RECIPES)}, or a YAML file "
        "with sections of --set (default: sample for sample:N, else published, which starts from "
        "--start-from or an installed MiniLM)",
    )
    about = "least share of right answers to promise of what `score` then calls decided, not ask"
    target = "finetuning.target_accuracy"
    add_setting_option(run, "--target-accuracy", target, "SHARE", about)
    run.add_argument(
        "--effort",
        choices=("auto", "quick", "full"),
        help="quick: only the arms that take seconds; full: fine-tuning too; auto: fine-tuning "
        f"with {MIN_FINETUNED:,} labels or more (default: auto)",
    )
    run.add_argument(
        "--dry-run",
        action="store_true",
        help="print the settings, what each file of the dump holds, and which stages are complete",
    )


def add_score_options(score: OptionParser) -> None:
    add_command(
        score,
        score_dump,
        "Write a row for every record of each file, in order: file, row, id, label, probabilities, "
        "model version, and the reason if there is no label. Files that the model has scored "
        "before are not scored again.",
    )
    add_dump_options(score, "dump.columns=text=body or model.workers=4", with_labels=False)
    which = score.add_mutually_exclusive_group()
    which.add_argument("--alias", default="champion", help="alias of the model (default: champion)")
    score.shortcuts["model.alias"] = "--alias"
    about = "task whose model labels the records (default: all that have the alias)"
    add_setting_option(score, "--task", "model.task", "TASK", about)
    which.add_argument(
        "--model", metavar="FOLDER", help="model folder to use instead of the registry's"
    )
    score.add_argument(
        "--output", default="scores", help="folder or address for the scores (default: scores)"
    )
    about = "column of the input to copy, so that you can join (default: found by its name)"
    add_setting_option(score, "--id", "scores.id", "COLUMN", about)
    about = "format of the scores: parquet, csv or jsonl (default: parquet)"
    add_setting_option(score, "--format", "scores.format", "FORMAT", about)
    score.add_argument(
        "--with-text",
        action="append_const",
        dest="settings",
        const="scores.with_text=true",
        help="write the text too (scores.with_text)",
    )
    score.add_argument(
        "--explain",
        action="append_const",
        dest="settings",
        const="scores.explain=true",
        help="write the phrases with the largest weight for each answer (scores.explain)",
    )
    score.add_argument(
        "--dry-run",
        action="store_true",
        help="print the model, what each file of the dump holds, and which stages are complete",
    )


def run_from_arguments(arguments: argparse.Namespace) -> None:
    """Run the graph, or print what it would make."""
    form = build_form(arguments)
    (print_plan if arguments.dry_run else execute_graph)(form)


def build_form(arguments: argparse.Namespace) -> Parameters:
    """Return the form of a run."""
    given = {"store": build_store(arguments).address, **require_dump(arguments)}
    given |= {"recipe": arguments.recipe or "auto", "effort": arguments.effort or "auto"}
    return fill_form(Parameters, arguments.settings, **given)


def print_plan(form: Parameters) -> None:
    """Print the files of the dump, the settings that are not the default as JSON (Prefect takes
    it as `--params`), then a line per stage.
    """
    os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
    from amazon_electra.flows import domain_adaptation

    plan = Plan(Store(form.store, is_dry=True))
    dump = build_dump_stage(form.dump, plan.store)
    previews, languages = print_files(form.dump, dump, form.corpus)
    domain_adaptation.graph(form, plan)
    print(f"settings  {json.dumps(form.model_dump(exclude_defaults=True))}")
    show("\n".join(list_lines(plan)))
    made = {stage.name: (stage, is_complete) for stage, is_complete in plan.stages}
    is_known = made["corpus"][1]
    if not is_known and form.is_contrast_automatic:
        print(
            "note: the corpus job decides how the encoder is adapted: by contrast if "
            f"{MIN_TITLES:,} reviews have a title that can be used, else on the text alone if "
            f"{PASSES} passes over it have {MIN_TOKENS / 1e6:.0f} million tokens, else not at all"
        )
    elif not is_known and form.is_adaptation_optional:
        print(
            f"note: the run skips pre-training, and the stages that need it, if {PASSES} passes "
            f"over the dump's text have fewer than {MIN_TOKENS / 1e6:.0f} million tokens"
        )
    if not is_known and is_effort_automatic(form):
        few = f"fewer than {MIN_FINETUNED:,} labels"
        print(f"note: nothing is fine-tuned if the corpus job finds {few}")
    if "origin" in made:
        given = (review.text for each in previews for review in each.reviews)
        texts = [text for text in given if isinstance(text, str)]
        if length := foretell_length(
            form.finetuning, form.recipe, plan.store, texts, made["origin"][0]
        ):
            print(f"length    {length.describe()}")
    if "origin" in made and not made["corpus"][1]:  # a complete corpus has its own counts
        about = describe_origin(plan.store, made["origin"][0])
        if warning := warn_of_languages(about, languages):
            show(f"warning: {warning}")


def show(text: str) -> None:
    """Print lines about a dump, with settings as these commands have them."""
    print(spell_for_commands(text))


def print_files(
    chosen: Dump, dump: Stage, corpus: Corpus | None = None, scores: Scores | None = None
) -> tuple[list[preview.Preview], dict[str, int]]:
    """Print what each file of a dump holds, and what of it becomes a corpus, or the ids of scores;
    return the first records, and how many of them are in each language. `dump` is its stage.
    """
    previews = preview.read_previews(preview.list_files(chosen, dump), chosen)
    scale, about_scale = preview.find_scale(previews, chosen.stars_scale)
    for file in previews:
        show("\n".join(preview.describe_file(file, scale, chosen.fold_labels)))
    if about_scale:
        show(about_scale)
    if not chosen.repair_mojibake and (line := preview.describe_mojibake(previews)):
        show(line)
    for column in chosen.labels:
        counts, _ = preview.list_contradictory_texts(previews, column, chosen.fold_labels)
        if line := describe_contradictions(counts):
            show(f"label     {column}: {line}")
    if scores:
        for file in previews:
            if line := preview.describe_ids(file, scores.id):
                show(line)
    if corpus and (line := preview.describe_withheld(previews, corpus.split)):
        show(line)
    if corpus:
        print_expected_corpus(previews, chosen, corpus)
    languages = preview.count_languages(previews)
    total = sum(languages.values())
    shown = [f"{name} {n / total:.0%}" for name, n in languages.items() if n / total >= 0.005]
    if shown:
        show(f"languages {', '.join(shown[:SHOWN_LANGUAGES])}")
    return previews, languages


def print_expected_corpus(
    previews: Sequence[preview.Preview], chosen: Dump, corpus: Corpus
) -> None:
    """Print what the first records show of the corpus, and what only the corpus job can know."""
    expected_corpus.check_split(previews, corpus)
    if corpus.split_by == "time":
        show(expected_corpus.describe_dates(previews, corpus))
    expected = expected_corpus.foretell_corpus(previews, chosen, corpus)
    for line in expected.get("warnings", ()):
        show(line)
    if not expected:
        show("classes   counted by the corpus job, which ends where a split has no example of them")


def execute_graph(form: Parameters) -> dict[str, Any]:
    """Run the graph here; print what came out and where it is, and return the paths."""
    store = Store(form.store)
    store.place.check_access()
    plan = Plan(store)
    dump = list_dump(form.dump, plan)
    labels.resolve_tasks(form, dump, plan)
    make_origin(form.pretraining, plan, dump)

    def run() -> dict[str, Any]:
        from amazon_electra.flows.domain_adaptation import domain_adaptation

        return domain_adaptation(**{name: getattr(form, name) for name in Parameters.model_fields})

    began = time.monotonic()
    made = {}
    if read_finished(store, form.promotion):
        # apart: Prefect keeps the settings with which it was imported, those of no server
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as apart:
            made = apart.submit(show_finished, form, store).result()
    made = made or terminal.run_in_terminal(form, run)
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
    return made


def show_finished(form: Parameters, store: Store) -> dict[str, Any]:
    """Show a run again that the store has finished and nothing has changed since; return the paths
    of what it made, empty where something is to do.
    """
    finished = read_finished(store, form.promotion)
    if not finished:
        return {}
    from amazon_electra.flows.domain_adaptation import graph
    from amazon_electra.flows.runs.graph_run import list_results

    plan = Plan(store)
    try:
        last = graph(form, plan)
    except Exception:  # raised again where the run itself comes upon it
        return {}
    if last.path != finished["report"] or not all(is_complete for _, is_complete in plan.stages):
        return {}
    with terminal.Terminal() as shown:
        shown.print_line(format_total(plan))
        for stage, _ in plan.stages:
            if manifest := store.manifest(stage):
                shown.on_complete(stage, manifest, found=True)
    made = list_results(store, [stage for stage, _ in plan.stages], last)
    return made | {"registered": finished["registered"]}


def score_dump(arguments: argparse.Namespace) -> None:
    """Label the records of a dump; or print the plan."""
    output = arguments.output
    given = {
        "store": build_store(arguments).address,
        "output": output if is_remote(output) else str(Path(output).absolute()),
        "model": {"alias": arguments.alias},
        **require_dump(arguments),
    }
    form = fill_form(Scoring, arguments.settings, **given)
    if arguments.model:
        if arguments.dry_run:
            print_folder_plan(arguments.model, form)
        else:
            score_with_folder(arguments.model, form)
        return
    if not arguments.dry_run:
        label_dump(form)
        return
    open_store(arguments)  # refuses one that is not there
    store = Store(form.store, is_dry=True)
    dump = build_dump_stage(form.dump, store)  # refuses wrong paths
    models = scoring.find_models(form, store)
    print_files(form.dump, dump, scores=form.scores)
    print_scoring_plan(form, dump, models, store)


def label_dump(form: Scoring) -> dict[str, Any]:
    """Label the records of a dump with a model of the registry; return folder and files."""
    store = Store(form.store)
    store.place.check_presence()
    build_dump_stage(form.dump, store)  # refuses wrong paths at once
    scoring.find_models(form, store)

    def run() -> dict[str, Any]:
        from amazon_electra.flows.score import score

        return score(**{name: getattr(form, name) for name in type(form).model_fields})

    parameters = Parameters(dump=form.dump, store=form.store)
    made = terminal.run_in_terminal(parameters, run)
    print(f"scores      {made['folder']}: {format_count(len(made['files']), 'file')}")
    show_drift(made["results"])
    return made


def print_folder_plan(model: str, form: Scoring) -> None:
    """Print the files of the dump, the model folder and where the scores would go."""
    from amazon_electra.beam_jobs.scoring.classifier import name_version

    version = name_version(model, form.model.precision)
    dump = build_dump_stage(form.dump, Store(form.store, is_dry=True))
    print_files(form.dump, dump, scores=form.scores)
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
        show(f"warning: {warning}")
    return made


def show_drift(files: Sequence[dict[str, Any]]) -> None:
    """Print whether the model still holds for files that were scored, where that is known."""
    if line := scoring.describe_drift(files):
        print(f"drift       {line}")


def print_scoring_plan(
    form: Scoring, dump: ListedDump, models: Sequence[scoring.RegisteredModel], store: Store
) -> None:
    """Print the model, the settings that are not the default as JSON, then a line per stage."""
    plan = Plan(store)
    new = scoring.leave_out_files(dump, scoring.find_scores(models, form, store))
    scoring.make_scores(models, form, new, plan)
    print(f"model     {form.model.alias}: {scoring.describe_models(models)}")
    print(f"settings  {json.dumps(form.model_dump(exclude_defaults=True))}")
    show("\n".join(list_lines(plan)))
