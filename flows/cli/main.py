"""The `amazon-electra` command. Exit codes: 0 done, 1 failed, 2 the user's mistake, 75 try again.

Each command imports what it needs when it is typed: `--help` answers at once.
"""

import os
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import Any

from cyclopts import App, CycloptsError

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.beam_jobs.core.files import check_name
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.flows.servers.access import NO_TELEMETRY

COMMANDS = {
    "run": ("run_commands:run", "Run the whole graph on a dump."),
    "score": ("run_commands:score", "Label every review of a dump with a model of the registry."),
    "suggest": ("store_commands:suggest", "Choose the reviews that are worth a label next."),
    "study": ("run_commands:study", "Run a study."),
    "runs": ("store_commands:runs", "List the runs of a store."),
    "show": ("store_commands:show", "Show a stage and its lineage."),
    "prune": ("store_commands:prune", "Remove from a store what no run or model needs."),
    "up": ("store_commands:up", "Start the Prefect and MLflow servers; serve the deployments."),
    "promote": ("store_commands:promote", "Make a model the champion, an earlier one too."),
}
"""Command → where it is, and its line in `--help`."""


def build_app() -> App:
    """Return the command line."""
    app = App(
        name="amazon-electra",
        help="Train a text classifier on a dump of product reviews, from a published or an adapted "
        "encoder, and measure what each step gains.",
        help_format="plaintext",
        version_flags=(),
    )
    for name, (place, about) in COMMANDS.items():
        app.command(f"amazon_electra.flows.cli.{place}", name=name, help=about)
    app.register_install_completion_command(help="Let the shell complete options.")
    return app


def main() -> None:
    """Run the command of this process and end it with its exit code."""
    if isinstance(sys.stdout, TextIOWrapper):  # escape what its encoding lacks, as stderr does
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run_words(sys.argv[1:]))


def run_words(words: Sequence[str]) -> int:
    """Run the command that these words are, and return its exit code."""
    try:
        for word in words:
            check_name(word)
        command, bound, _ = build_app().parse_args(words, exit_on_error=False, print_error=False)
    except (UserError, CycloptsError) as mistake:
        from amazon_electra.beam_jobs.core.command_line import explain

        why = explain(mistake) if isinstance(mistake, CycloptsError) else mistake
        print(f"error: {why}", file=sys.stderr)
        return 2
    typed = shlex.join(["amazon-electra", *words])
    return attempt(lambda: command(*bound.args, **bound.kwargs), typed)


def attempt(do: Callable[[], Any], command: str = "the same call") -> int:
    """Run a command, return its exit code, and print a known cause of a failure in one line."""
    os.environ.update(NO_TELEMETRY)
    for name, value in list(os.environ.items()):
        if name.startswith(("PREFECT_", "MLFLOW_")) and not value:
            del os.environ[name]  # an .env file left it empty: Prefect takes that for a password
    try:
        do()
    except UserError as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"stopped; continue with: {command}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    except Exception as failure:
        is_known = isinstance(failure, JobFailed | OSError)
        print(f"failed: {failure}" if is_known else traceback.format_exc(), file=sys.stderr)
        return os.EX_TEMPFAIL if isinstance(failure, TransientError) else 1
    return 0


if __name__ == "__main__":
    main()
