"""The `amazon-electra` command. Exit codes: 0 done, 1 failed, 2 the user's mistake (one line that
says what to do), 75 failed by what another attempt may mend.

Each command imports what it needs when it is typed: `--help` answers at once.
"""

import argparse
import os
import shlex
import shutil
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.beam_jobs.core.settings import OptionParser
from amazon_electra.beam_jobs.core.terminal import accept_all_characters, print

COMMANDS = {
    "run": ("run_commands", "run the whole graph on a dump"),
    "score": ("run_commands", "label every review of a dump with a model of the registry"),
    "suggest": ("suggest_command", "choose the reviews that are worth a label next"),
    "study": ("study_command", "run a study"),
    "runs": ("store_commands", "list the runs of a store"),
    "show": ("store_commands", "show a stage and its lineage"),
    "prune": ("store_commands", "remove from a store what no run or model needs"),
    "up": (
        "server_commands",
        "start the Prefect and MLflow servers and serve the deployments",
    ),
    "promote": ("server_commands", "make a model of the registry the champion, an earlier one too"),
}
"""Command → the module of flows.cli whose `add_NAME_options` fills it, and its line in `--help`."""
FULL_BYTES = 1_000_000
"""With less room than this on its disk SQLite and others fail, each in its own words."""


class Command(OptionParser):
    """A command that imports its module, and gets its options, once it is typed."""

    def __init__(self, command: str = "", **options: Any) -> None:
        self.command = command
        super().__init__(**options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.command:
            command, self.command = self.command, ""
            module = import_module(f"amazon_electra.flows.cli.{COMMANDS[command][0]}")
            getattr(module, f"add_{command}_options")(self)
        return super().parse_known_args(args, namespace)


def build_parser() -> OptionParser:
    """Return the parser of the command line, each command with the function that runs it."""
    main_parser = OptionParser(
        prog="amazon-electra",
        description="Train a text classifier on a dump of product reviews, from a published or an "
        "adapted encoder, and measure what each step gains.",
    )
    commands = main_parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=Command
    )
    for name, (_, about) in COMMANDS.items():
        description = f"{about[0].upper()}{about[1:]}."
        commands.add_parser(name, command=name, help=about, description=description)
    return main_parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command and end the process with its exit code."""
    accept_all_characters()
    try:
        arguments = build_parser().parse_args(argv)
    except UserError as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        sys.exit(2)
    words = sys.argv[1:] if argv is None else argv
    sys.exit(attempt(arguments, shlex.join(["amazon-electra", *words])))


def attempt(arguments: argparse.Namespace, command: str = "the same call") -> int:
    """Run a command and return its exit code; a known cause of a failure is printed in one line.
    `command` as it was typed.
    """
    from amazon_electra.flows.cli.options import build_store
    from amazon_electra.flows.configuration.form import spell_for_commands
    from amazon_electra.flows.servers.access import restrict_store
    from amazon_electra.flows.servers.health import ServerFailed
    from amazon_electra.flows.servers.settings import NO_TELEMETRY

    os.environ.update(NO_TELEMETRY)
    for name, value in list(os.environ.items()):
        if name.startswith(("PREFECT_", "MLFLOW_")) and not value:
            del os.environ[name]  # an .env file left it empty: Prefect takes that for a password
    is_typed = "parser" in arguments  # not called from Python

    def spell(message: object) -> str:
        return (
            spell_for_commands(str(message), arguments.parser.shortcuts)
            if is_typed
            else str(message)
        )

    try:
        is_dry = getattr(arguments, "dry_run", False)  # which makes nothing, not even the folder
        if arguments.command in ("run", "study", "up") and not is_dry:
            restrict_store(build_store(arguments).root)
        arguments.do(arguments)
    except UserError as mistake:
        print(f"error: {spell(mistake)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"stopped; continue with: {command}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    except TransientError as failure:
        print(f"failed: {spell(failure)}", file=sys.stderr)
        return os.EX_TEMPFAIL
    except Exception as failure:
        full = find_full_disk(arguments)  # the server's database and logs are there too
        if full or isinstance(failure, JobFailed | ServerFailed | OSError):
            print(f"failed: {full or spell(failure)}", file=sys.stderr)
        else:
            print(traceback.format_exc().rstrip(), file=sys.stderr)
        return 1
    return 0


def find_full_disk(arguments: argparse.Namespace) -> str:
    """Return in one line that the disk of the store or of temporary files is full, or nothing."""
    from amazon_electra.flows.cli.options import build_store

    folders = [Path(tempfile.gettempdir())]
    if hasattr(arguments, "store"):
        folders.append(build_store(arguments).root)
    for folder in folders:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        if shutil.disk_usage(there).free < FULL_BYTES:
            return f"the disk of {folder} is full; make room, then the same command continues"
    return ""


if __name__ == "__main__":
    main()
