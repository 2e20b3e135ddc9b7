"""`amazon-electra study`: a study file, from a dump or from data that is there, to a report."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

from typing_extensions import Doc

from amazon_electra.beam_jobs.core.command_line import make_command
from amazon_electra.beam_jobs.core.settings import build_settings
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.flows.cli import terminal
from amazon_electra.flows.cli.stores import SHORT, DryRun, StorePlace, build_store, require_dump
from amazon_electra.flows.configuration.form import STUDY_SECTIONS, Parameters, StudyForm
from amazon_electra.flows.configuration.form_tools import fill_form
from amazon_electra.flows.configuration.study_file import StudyChoice
from amazon_electra.flows.dumps import labels
from amazon_electra.flows.dumps.preview import read_previews
from amazon_electra.flows.servers.access import restrict_store
from amazon_electra.flows.stages.dump import build_dump_stage, list_files
from amazon_electra.flows.store.group import list_stages
from amazon_electra.flows.studies.study_reading import load_study
from amazon_electra.flows.ui.plan_page import list_lines
from amazon_electra.model.recipes import RECIPES


def run_study(
    name: Annotated[str, Doc("A shipped study, or a YAML file")],
    /,
    given: Annotated[dict[str, Any], StudyForm],
    *,
    recipe: Annotated[
        str,
        Doc(f"Recipe of what is made from the dump: {', '.join(RECIPES)}, or a YAML file"),
    ] = "sample",
    store: StorePlace = None,
    dry_run: DryRun = False,
) -> None:
    """Run a study: arms × tasks × seeds × settings, in a YAML file. With --dump, ${corpus},
    ${shards} and ${encoder} of the file are made from the dump first, and ${general_shards} from
    the text of --study.general-text; the texts of the other tasks are withheld from all of them.
    The same command continues an interrupted study; after a change it makes only what changed.
    """
    # what is known to be wrong is refused before a server is started
    choice = build_settings(StudyChoice, {**given.pop("study", {}), "file": name})
    opened = build_store(store, dry_run)
    parameters = fill_form(Parameters, **given, recipe=recipe, store=opened.address)
    loaded = load_study(parameters, choice)
    if loaded.reads_dump:
        require_dump(given)
    if not dry_run:
        restrict_store(opened.root)
        opened.check_access()
    dump = None
    if loaded.reads_dump:
        dump = build_dump_stage(parameters.dump, opened)
        labels.check_labels(loaded.labelled_tasks, parameters.dump)
        read_previews(parameters.dump, dump)
    for place in choice.general_text:
        list_files(place, opened, "study.general_text")
    if dry_run:
        from amazon_electra.flows.study import graph

        print("\n".join(list_lines(list_stages(graph(parameters, loaded, opened, dump), opened))))
        return

    def run() -> dict[str, Any]:
        from amazon_electra.flows.study import study

        return study(study=choice, **{name: getattr(parameters, name) for name in STUDY_SECTIONS})

    began = time.monotonic()
    folder = Path(
        terminal.run_in_terminal(opened.root, run, parameters.promotion.mode != "off")["folder"]
    )
    terminal.print_results(folder)
    print(
        f"answer      {json.loads((folder / 'report.json').read_text(encoding='utf-8'))['answer']}"
    )
    print(f"report      {folder / 'report.html'}")
    print(f"done in     {time.monotonic() - began:,.1f} s")


study = make_command(run_study, SHORT, left_out=("study.file", "effort", "finetuning", "promotion"))
