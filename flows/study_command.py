"""`amazon-electra study`: a study file from a dump to its report, or on data and encoders that are there already."""

import argparse
import json
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from beam_jobs.command import UserMistake
from flows import in_terminal

EPILOG = """A study is arms × tasks × seeds × settings in a YAML file; model/evaluation/studies/README.md has the
shipped ones. With --dump, what the file calls ${corpus}, ${shards} and ${encoder} is made of the dump first,
${general_shards} of the text that --general names, and the texts of the other tasks are withheld from all of them. A
study that was ended goes on; one that was changed repeats what changed."""


def add_study(commands: Any, presets: tuple[str, ...]) -> None:
    study = commands.add_parser("study", help="run a study file", description=__doc__, epilog=EPILOG)
    study.add_argument("study", metavar="NAME|FILE", help="a shipped study, or a YAML file")
    study.add_argument("--dump", nargs="+", metavar="PATH", help="files or globs of reviews, or sample:NUMBER")
    study.add_argument("--general", nargs="+", default=[], metavar="PATH", help="text that is not reviews")
    study.add_argument("--preset", choices=presets, default="tiny", help="of what is made of the dump")
    in_terminal.add_store(study)
    study.add_argument("--at-once", type=int, default=2, help="cells side by side, one thread each (default: 2)")
    study.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="NAME=VALUE",
        help="a variable of the file (reviews=PATH), its seeds or one of its settings (epochs=3), or a setting of the "
        "stages before it (pretraining.steps=500)",
    )
    study.add_argument("--dry-run", action="store_true", help="print the stages and cells and which are complete")
    study.set_defaults(do=run_study)


def run_study(arguments: argparse.Namespace) -> None:
    from flows.stages import study

    parameters, choice = asked(arguments)
    missing = study.wanted(choice)
    if missing and not arguments.dump:
        named = ", ".join(sorted(missing))
        raise UserMistake(f"{arguments.study} needs {named}: give --dump PATH…, or --set {min(missing)}=FOLDER")
    study.read(parameters, choice)
    if arguments.dry_run:
        print_plan(parameters, choice)
    elif missing:
        through_prefect(parameters, choice)
    else:
        alone(parameters, choice)


def asked(arguments: argparse.Namespace) -> tuple[Any, Any]:
    """Parameters of the graph, and which study with which variables and settings."""
    from flows.parameters import MOST_AT_ONCE, StudyChoice
    from flows.settings import from_settings
    from model.finetuning.config import FinetuningSettings

    given = {"dump": {"paths": arguments.dump}} if arguments.dump else {}
    store = str(Path(arguments.store).expanduser().resolve())
    stages = [s for s in arguments.settings if "." in s.partition("=")[0]]
    own: dict[str, dict[str, str]] = {"settings": {}, "variables": {}}
    for setting in arguments.settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise UserMistake(f"--set {setting}: write --set NAME=VALUE")
        if setting not in stages:
            is_setting = name == "seeds" or name in FinetuningSettings.__dataclass_fields__
            own["settings" if is_setting else "variables"][name] = value
    general = [str(Path(path).expanduser()) for path in arguments.general]
    if not 1 <= arguments.at_once <= MOST_AT_ONCE:
        raise UserMistake(f"--at-once {arguments.at_once}: must be from 1 to {MOST_AT_ONCE}")
    choice = StudyChoice(
        file=arguments.study,
        at_once=arguments.at_once,
        general_text=general,
        variables=own["variables"],
        settings=own["settings"],
    )
    return from_settings(stages, preset=arguments.preset, store=store, **given), choice


def print_plan(parameters: Any, choice: Any) -> None:
    """A line per stage; a line per cell where what they are made of is there."""
    from flows.completion import Plan
    from flows.parts import study_graph
    from flows.store import Store

    plan = Plan(Store(parameters.store))
    last = study_graph(choice)(parameters, plan)
    in_terminal.print_stages(plan)
    if all(complete for stage, complete in plan.stages if stage is not last):
        from model import study

        with tempfile.TemporaryDirectory() as scratch:
            cells = study.run([*last.arguments(plan.store, Path(scratch)), "--dry_run"])["cells"]
        for cell in cells:
            print(f"{'complete' if cell['complete'] else 'to do':<10}cell          {cell['cell']}")


def through_prefect(parameters: Any, choice: Any) -> None:
    """As `run` does: shown in this terminal, recorded by a Prefect server."""

    def run() -> dict[str, Any]:
        from flows import parts

        groups = ("dump", "preset", "corpus", "vocabulary", "shards", "pretraining", "store")
        return parts.study(study=choice, **{name: getattr(parameters, name) for name in groups})

    began = time.monotonic()
    made = in_terminal.shown(parameters, run)
    print_end(Path(made["folder"]), time.monotonic() - began)


def alone(parameters: Any, choice: Any) -> None:
    """Nothing is made of a dump: one stage, for which no server is needed."""
    from flows import presentation, servers
    from flows.completion import Completion
    from flows.processes import none_left
    from flows.stages import study
    from flows.store import Store
    from model.tracking import Tracking

    began, store = time.monotonic(), Store(parameters.store)
    servers.end_at_signals(signal.SIGTERM)
    (store.root / "mlflow").mkdir(parents=True, exist_ok=True)
    stage = study.stage(parameters, choice, {}, store)
    with presentation.Terminal() as terminal, none_left():
        Completion(store, [terminal], Tracking(servers.mlflow_uri(store.root))).complete(stage)
    print_end(store.folder(stage), time.monotonic() - began)


def print_end(folder: Path, seconds: float) -> None:
    """What came out and where it is."""
    from flows.results import print_results

    print_results(folder)
    print(f"answer      {json.loads((folder / 'report.json').read_text())['answer']}")
    print(f"report      {folder / 'report.html'}")
    print(f"done in     {seconds:,.1f} s")
