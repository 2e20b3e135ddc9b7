"""Run a study file from a dump to its report, or on data and encoders that exist already."""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.settings import OptionParser, parse_assignments
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.flows.cli import terminal
from amazon_electra.flows.cli.options import (
    add_command,
    add_dump_options,
    add_start_option,
    build_store,
)
from amazon_electra.flows.configuration.form import Parameters, fill_parameters, spell_for_commands
from amazon_electra.flows.configuration.study_file import MAX_AT_ONCE, StudyChoice
from amazon_electra.flows.dumps import labels
from amazon_electra.flows.dumps.preview import read_previews
from amazon_electra.flows.stages.dump import build_dump_stage, list_files
from amazon_electra.flows.store.group import list_stages
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.studies.study_reading import LoadedStudy, load_study
from amazon_electra.flows.ui.plan_page import list_lines
from amazon_electra.model.config import FinetuningSettings
from amazon_electra.model.recipes import RECIPES

EPILOG = """A study is arms × tasks × seeds × settings in a YAML file;
flows/studies/shipped/README.md lists the shipped ones. With --dump, ${corpus}, ${shards} and
${encoder} of the file are made from the dump first, and ${general_shards} from the text of
--general; the texts of the other tasks are withheld from all of them. The same command continues
an interrupted study; after a change it makes only what changed."""


def add_study_options(study: OptionParser) -> None:
    add_command(study, run_study, __doc__ or "")
    study.epilog = EPILOG
    study.add_argument("study", metavar="NAME|FILE", help="a shipped study, or a YAML file")
    add_dump_options(
        study,
        "its seeds, the steps of its pre-trainings, a setting of fine-tuning (epochs=3) or one of "
        "the stages before it (corpus.split_by=product)",
    )
    add_start_option(study)
    study.shortcuts |= {"study.general_text": "--general", "recipe": "--recipe"}
    study.add_argument(
        "--general", nargs="+", default=[], metavar="PATH", help="files of text other than reviews"
    )
    study.add_argument(
        "--recipe",
        metavar="NAME|FILE",
        default="sample",
        help=f"recipe of what is made from the dump: {', '.join(RECIPES)}, or a YAML file",
    )
    study.add_argument(
        "--at-once",
        type=int,
        default=2,
        help="cells that run side by side and share the cores (default: 2)",
    )
    study.add_argument(
        "--dry-run", action="store_true", help="print the stages and cells and which are complete"
    )


def run_study(arguments: argparse.Namespace) -> None:
    """Run the study, or print what it would make. Refuses what is known to be wrong before a server
    is started: paths that are not there, a dump without stars where tasks need them.
    """
    parameters, choice = read_choice(arguments)
    loaded = load_study(parameters, choice)
    if loaded.reads_dump and not arguments.dump:
        raise UserError(f"{arguments.study} needs a dump", "dump.paths")
    store = Store(parameters.store, is_dry=arguments.dry_run)
    if not arguments.dry_run:
        store.check_access()
    if loaded.reads_dump:
        dump = build_dump_stage(parameters.dump, store)
        labels.check_labels(loaded.labelled_tasks, parameters.dump)
        read_previews(parameters.dump, dump)
    for given in choice.general_text:
        list_files(given, store, "study.general_text")
    if arguments.dry_run:
        print_plan(parameters, loaded)
        return

    def run() -> dict[str, Any]:
        from amazon_electra.flows.study import FORM_SECTIONS, study

        return study(study=choice, **{name: getattr(parameters, name) for name in FORM_SECTIONS})

    began = time.monotonic()
    folder = Path(
        terminal.run_in_terminal(store.root, run, parameters.promotion.mode != "off")["folder"]
    )
    terminal.print_results(folder)
    print(
        f"answer      {json.loads((folder / 'report.json').read_text(encoding='utf-8'))['answer']}"
    )
    print(f"report      {folder / 'report.html'}")
    print(f"done in     {time.monotonic() - began:,.1f} s")


def read_choice(arguments: argparse.Namespace) -> tuple[Parameters, StudyChoice]:
    """Return the graph's parameters, and which study with which settings."""
    if not 1 <= arguments.at_once <= MAX_AT_ONCE:
        raise UserError(f"--at-once {arguments.at_once}: must be from 1 to {MAX_AT_ONCE}")
    known = {"seeds", "pretraining_seeds", "steps", *FinetuningSettings.model_fields}
    stages, settings = list[str](), dict[str, str]()
    for path, value in parse_assignments(arguments.settings).items():
        name = path.removeprefix("finetuning.")
        if name in known:
            settings[name] = value
        else:
            stages.append(f"{path}={value}")
    choice = StudyChoice(
        file=arguments.study,
        at_once=arguments.at_once,
        general_text=[str(Path(path).expanduser()) for path in arguments.general],
        settings=settings,
    )
    dump = {"paths": arguments.dump, "labels": arguments.labels}
    given = {"dump": {name: value for name, value in dump.items() if value}}
    store = build_store(arguments).address
    return fill_parameters(stages, recipe=arguments.recipe, store=store, **given), choice


def print_plan(parameters: Parameters, loaded: LoadedStudy) -> None:
    """Print a line per stage and cell: complete or to do."""
    from amazon_electra.flows.study import graph

    store = Store(parameters.store, is_dry=True)
    stages = list_stages(graph(parameters, loaded, store), store)
    print(spell_for_commands("\n".join(list_lines(stages))))
