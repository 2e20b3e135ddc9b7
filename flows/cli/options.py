"""What several commands share: the store, the dump, `--set`."""

import argparse
import os
from collections.abc import Callable
from typing import Any

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.settings import OptionParser
from amazon_electra.flows.servers import mlflow_server
from amazon_electra.flows.store.store import Store
from amazon_electra.model.encoders.places import FORMS
from amazon_electra.model.tracking.registry import Registry, list_registries, name_model

START, ALSO = "pretraining.start_from", "pretraining.also_start_from"


def add_command(
    command: OptionParser, do: Callable[[argparse.Namespace], None], description: str = ""
) -> None:
    """Give a command its function and `--store`."""
    command.description = description or command.description
    command.set_defaults(do=do, parser=command)
    command.shortcuts["store"] = "--store"
    command.add_argument(
        "--store",
        default=os.environ.get("AMAZON_ELECTRA_STORE") or "store",
        help="folder of the results, or s3://BUCKET/FOLDER or gs://BUCKET/FOLDER (default: "
        "AMAZON_ELECTRA_STORE, else store)",
    )


def add_dump_options(command: OptionParser, settings: str, with_labels: bool = True) -> None:
    """Add the options of a dump and `--set`; `settings` are examples of what may be set."""
    command.shortcuts |= {"dump.paths": "--dump"}
    command.add_argument(
        "--dump",
        nargs="+",
        metavar="PATH",
        help="files, folders or globs of reviews, or sample:NUMBER for synthetic ones",
    )
    about = "columns of the dump, for example text=body,stars=score"
    add_setting_option(command, "--columns", "dump.columns", "FIELD=NAME,…", about)
    about = "key of the list of reviews in a JSON object"
    add_setting_option(command, "--records", "dump.records", "KEY", about)
    if with_labels:
        about = "scale of the stars, if the values leave it open: 1-10, or 6-1 where 1 is the best"
        add_setting_option(command, "--stars-scale", "dump.stars_scale", "WORST-BEST", about)
        command.shortcuts |= {"dump.labels": "--label"}
        command.add_argument(
            "--label",
            action="append",
            default=[],
            dest="labels",
            metavar="COLUMN",
            help="column with classes of your own, which becomes a task label:COLUMN; may be "
            "repeated (dump.labels)",
        )
    command.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="SECTION.FIELD=VALUE",
        help=f"any other setting, for example {settings}; may be repeated",
    )


class AddStart(argparse.Action):
    """Sets the encoder to adapt; given again, adds one to those whose states are read beside it."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, value: Any, option: str | None = None
    ) -> None:
        start, also = f"{START}=", f"{ALSO}="
        before = list(namespace.settings)
        if any(text.startswith(start) for text in before):
            others = [text.removeprefix(also) for text in before if text.startswith(also)]
            before = [text for text in before if not text.startswith(also)]
            added = also + ",".join([*others, value])
        else:
            added = start + value
        namespace.settings = [*before, added]


def add_start_option(command: OptionParser) -> None:
    """Add `--start-from`."""
    command.shortcuts |= {START: "--start-from", ALSO: "--start-from"}
    command.add_argument(
        "--start-from",
        action=AddStart,
        metavar="DIR|NAME",
        help=f"published encoder to adapt: {FORMS} ({START}); given again, another one whose "
        f"states are read beside it ({ALSO})",
    )


def add_setting_option(
    command: OptionParser, option: str, setting: str, metavar: str, about: str
) -> None:
    """Add an option that is the short way to write `--set SECTION.FIELD=VALUE`."""
    command.shortcuts[setting] = option
    command.add_argument(
        option,
        action="append",
        default=[],
        dest="settings",
        type=f"{setting}={{}}".format,
        metavar=metavar,
        help=f"{about} ({setting})",
    )


def require_dump(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the form's section of the dump; a UserError asks for one where none is named."""
    labels = {"labels": arguments.labels} if getattr(arguments, "labels", []) else {}
    if arguments.dump:
        return {"dump": {"paths": arguments.dump, **labels}}
    if any(text.startswith("dump.paths=") for text in arguments.settings):
        return {"dump": labels} if labels else {}
    raise UserError(
        "name the files of your reviews, or sample:20000 for synthetic ones", "dump.paths"
    )


def build_store(arguments: argparse.Namespace) -> Store:
    """Return the store, which need not be there yet."""
    return Store(arguments.store)


def open_store(arguments: argparse.Namespace) -> Store:
    """Return the store; a UserError where there is none."""
    store = build_store(arguments)
    store.check_presence()
    return store


def open_registries(arguments: argparse.Namespace) -> list[Registry]:
    """Return the registered models of all tasks in the store's MLflow."""
    return list_registries(mlflow_server.resolve_mlflow_uri(open_store(arguments).root))


def open_registry(arguments: argparse.Namespace) -> Registry:
    """Return the registered model of `--task`; of the only task without it."""
    every, task = open_registries(arguments), arguments.task
    found = [one for one in every if not task or one.name == name_model(task)]
    if len(found) == 1:
        return found[0]
    tasks = ", ".join(one.task for one in every) or "none; a run registers its models"
    if task:
        raise UserError(f"no model of this task is registered: {tasks}", "task", task)
    raise UserError(f"name the one that is meant; models are registered of: {tasks}", "task")


def add_task_option(parser: OptionParser) -> None:
    """Add `--task`, which chooses among the models of the registry."""
    parser.shortcuts["task"] = "--task"
    about = "task of the model, where several are registered: polarity, stars or a label column"
    parser.add_argument("--task", help=about)
