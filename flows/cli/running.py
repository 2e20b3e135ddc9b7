"""What `amazon-electra run`, `score` and `study` do, or print of it in a dry run."""

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.errors import JobFailed
from amazon_electra.beam_jobs.core.nesting import find_json
from amazon_electra.beam_jobs.core.progress import format_count
from amazon_electra.beam_jobs.core.storage import is_remote
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.flows.cli import terminal
from amazon_electra.flows.configuration.form import Parameters, Scoring, StudyForm
from amazon_electra.flows.dumps import preview
from amazon_electra.flows.plan import RunPlan, list_lines, plan_run, planned
from amazon_electra.flows.stages import scores as scoring
from amazon_electra.flows.stages.dump import build_dump_stage, list_files
from amazon_electra.flows.store.stage import list_stages
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.store.usage import has_finished_run, read_registered
from amazon_electra.flows.studies.study_file import Study
from amazon_electra.model.report.owner import list_short_answers


def print_plan(form: Parameters, store: Store) -> dict[str, Any]:
    """Print how each file is read, the stages of a run, and why it has these."""
    from amazon_electra.flows.domain_adaptation import graph

    plan = plan_run(form, store)
    print("\n".join(preview.describe_files(form.dump, plan.previews)))
    print("\n".join(list_lines(list_stages(graph(plan), store), plan.notes)))
    return {}


def execute_graph(form: Parameters, store: Store) -> dict[str, Any]:
    """Run the graph here; print what came out and where it is, and return the paths."""
    store.check_access()
    began, plan = time.monotonic(), plan_run(form, store)
    made = {}
    if has_finished_run(store, plan.dump):
        # apart: Prefect keeps the settings with which it was imported, those of no server
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as apart:
            made = apart.submit(find_finished, form, plan).result()
    if not made:
        begun = plan.begin()  # the corpus, while Prefect's server starts

        def run() -> dict[str, Any]:
            from amazon_electra.flows.domain_adaptation import domain_adaptation

            planned.set(begun)
            return domain_adaptation(**dict(form))

        made = terminal.run_in_terminal(store.root, run)
    print_report(Path(made["folder"]))
    for task, model in made["models"].items():
        about = f", {task}" if len(made["models"]) > 1 else ""
        print(f"model       {model}{about}")
        for name, answer in list_short_answers(Path(model)):
            print(f"{name:11} {answer}")
    for became in made.get("registered", "").splitlines():
        print(f"registered  {became}")
    print(f"done in     {time.monotonic() - began:,.1f} s")
    if failed := made.get("failed"):
        what, why = next(iter(failed.items()))
        raise JobFailed(f"{len(failed)} failed, the model is the best of the others: {what}: {why}")
    if made.get("stopped"):
        print(f"stopped     the best so far: {' '.join(made['models'].values())}")
    return made


def print_report(folder: Path) -> None:
    """Print the answer of a report, and where it is; nothing where no label measured anything."""
    if report := find_json(folder / "report.json"):
        print(f"answer      {report['answer']}")
        print(f"report      {folder / 'report.html'}")


def find_finished(form: Parameters, plan: RunPlan) -> dict[str, Any]:
    """Return the paths of a run that is complete and registered; else nothing."""
    from amazon_electra.flows.domain_adaptation import graph
    from amazon_electra.flows.runs.graph_run import list_results

    try:
        stages = list_stages(graph(plan), plan.store)
    except Exception:  # raised again where the run itself comes upon it
        return {}
    last = stages[-1][0]
    registered = read_registered(plan.store, last, plan.dump, form.promotion.model_dump())
    if registered is None or not all(is_complete for _, is_complete in stages):
        return {}
    print(list_lines(stages)[-1])
    made = list_results(plan.store, [stage for stage, _ in stages], last)
    return made | {"registered": registered}


def execute_scoring(form: Scoring, model: str | None) -> dict[str, Any]:
    """Label the records of a dump with a model folder, or with models of the registry; return the
    folder of the scores, the names of its files, and what was counted of each file of the dump.
    """
    if not is_remote(form.output):
        form = form.replace(output=str(Path(form.output).absolute()))
    made = score_with_folder(form, model) if model else score_with_registry(form)
    print(f"scores      {made['folder']}: {format_count(len(made['files']), 'file')}")
    if line := scoring.describe_drift(made["results"]):
        print(f"drift       {line}")
    return made


def score_with_folder(form: Scoring, model: str) -> dict[str, Any]:
    """Label the records of a dump with a model folder: neither a server nor a store is needed."""
    from amazon_electra.beam_jobs import scoring_job

    store, paths = Store(form.store), list[str]()
    for given in form.dump.paths:
        paths += list_files(given, store)
    made = scoring_job.score(scoring.build_config((), form), model, paths, form.output)
    print(f"labelled    {made['scored']:,} of {made['read']:,} records")
    for reason, records in made["unscored"].items():
        print(f"            {records:,} {reason}")
    for warning in made.get("warnings", ()):
        print(f"warning: {warning}")
    files = [file["scores"] for file in made["files"]]
    return {"folder": form.output, "files": files, "results": made["files"]}


def score_with_registry(form: Scoring) -> dict[str, Any]:
    """Label the records with models of the registry; mistakes come before a server starts."""
    store = Store(form.store)
    store.check_access(writes=False)
    scoring.find_models(form, store)
    build_dump_stage(form.dump, store)

    def run() -> dict[str, Any]:
        from amazon_electra.flows.score import score

        return score(**dict(form))

    made = terminal.run_in_terminal(store.root, run)
    print(f"models      {made['models']}")
    return made


def execute_study(form: StudyForm, study: Study, store: Store, is_dry: bool) -> None:
    """Run a study and print its answer, or its stages; mistakes come before a server starts."""
    if not is_dry:
        store.check_access()
    began = time.monotonic()
    if study.reads_dump:
        build_dump_stage(form.dump, store)
    if is_dry:
        from amazon_electra.flows import study as flow

        print("\n".join(list_lines(list_stages(flow.graph(form, study, store), store))))
        return

    def run() -> dict[str, Any]:
        from amazon_electra.flows import study as flow

        return flow.study(**{name: getattr(form, name) for name in form.sections})

    made = terminal.run_in_terminal(store.root, run)
    print_report(Path(made["folder"]))
    print(f"done in     {time.monotonic() - began:,.1f} s")
