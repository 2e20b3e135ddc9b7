"""`run` and `score` as functions: what the commands of these names do.

Each works in a process of its own: Prefect reads its settings when it is imported, and a notebook
may have imported it; and Ctrl-C ends the run as in a terminal.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import (
    JobFailed,
    TransientError,
    UserError,
    describe_error,
)
from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.beam_jobs.core.nesting import find_json, read_json
from amazon_electra.beam_jobs.core.settings import Settings
from amazon_electra.flows.runner.processes import PYTHON_ENVIRONMENT
from amazon_electra.model.children import bind_command

Section = Mapping[str, Any] | Settings
Dump = str | Path | Sequence[str | Path] | Section
CALL, ANSWER = "call.json", "answer.json"


@dataclass(frozen=True)
class RunResult:
    """What a run made."""

    folder: Path
    """Folder of the report: report.html, report.md, report.json."""
    report: Path | None
    """The report as a page; None where no label measured anything."""
    model: Path | None
    """Folder of the first task's best classifier; None if no task has classes."""
    models: dict[str, Path]
    """That of each task."""
    registered: str
    """What each model became in the registry, and why; empty: none was registered."""

    @property
    def figures(self) -> dict[str, Any]:
        """Content of report.json: `results` has a row for each task and arm with its metrics and
        their 95% intervals, `differences` one for each pair of arms with its test.
        """
        return dict(read_json(self.folder / "report.json"))


@dataclass(frozen=True)
class ScoreResult:
    """What a scoring wrote."""

    folder: str
    """Folder or address of the scores."""
    files: tuple[str, ...]
    """The files there, at least one for each file of the dump. Each has a row for every record."""
    results: tuple[dict[str, Any], ...] = ()
    """What was counted of each file of the dump, as in scores.json: `drift` says how its texts
    differ from those that the model was tested on, and the accuracy to expect."""


def run(
    dump: Dump, *, store: str | Path | None = None, recipe: str = "auto", **sections: Section
) -> RunResult:
    """Run the whole graph on a dump, as `amazon-electra run` does, and return what it made.

    `dump` is a file, folder, glob or address of reviews, a list of these, `sample:NUMBER`, or all
    fields of the section: `{"paths": ["shop.csv"], "labels": ["reason"]}`. `store` is the folder or
    address of all results (default: AMAZON_ELECTRA_STORE, else `store`). `sections` are those of
    the form, for example `finetuning={"seeds": [0, 1]}`.

    Prints what the command prints. The same call continues a run that was interrupted, and makes
    nothing anew. Raises UserError for what only the user can put right, TransientError where the
    same call may pass later, and JobFailed for any other failure.
    """
    given = {**sections, "dump": describe_dump(dump)}
    made = call_command("run_graph", given, recipe=recipe, store=store)
    models = {task: Path(folder) for task, folder in made["models"].items()}
    return RunResult(
        folder=Path(made["folder"]),
        report=Path(made["report"]) if "report" in made else None,
        model=next(iter(models.values()), None),
        models=models,
        registered=made.get("registered", ""),
    )


def score(
    dump: Dump,
    output: str | Path = "scores",
    *,
    model: str | Path | Section | None = None,
    store: str | Path | None = None,
    **sections: Section,
) -> ScoreResult:
    """Label every record of a dump, as `amazon-electra score` does; return where the scores are.

    The model is the folder `model`, or the champion of each task in the registry of the store, or
    else its newest model; `model={"task": "stars"}` takes that of one task.
    Each file is a copy of its input with the answers beside its columns; with
    `scores={"format": "parquet"}` a table with the probability of each class. `sections` are those
    of the form. Raises as `run`.
    """
    folder = str(model) if isinstance(model, str | Path) else None
    section = {} if isinstance(model, str | Path) else {"model": dict(model or {})}
    given = {**sections, **section, "dump": describe_dump(dump)}
    made = call_command("score_dump", given, model=folder, output=str(output), store=store)
    files = tuple(storage.join_path(made["folder"], name) for name in made["files"])
    return ScoreResult(made["folder"], files, tuple(made["results"]))


def describe_dump(dump: Dump) -> dict[str, Any]:
    """Return the form's section of the dump."""
    if isinstance(dump, Mapping | Settings):
        return dict(dump)
    return {"paths": [str(path) for path in ([dump] if isinstance(dump, str | Path) else dump)]}


def call_command(name: str, given: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Call a function of cli/run_commands.py in a process of its own, which ends with this one.
    Return what it returns and raise what it raises.
    """
    with tempfile.TemporaryDirectory() as folder:
        call = {"name": name, "given": given, "options": options}
        write_json(Path(folder, CALL), to_jsonable_python(call))
        job = [sys.executable, "-m", "amazon_electra.flows.api.commands", folder]
        with subprocess.Popen(
            bind_command(job),
            stdin=subprocess.DEVNULL,
            env=os.environ | PYTHON_ENVIRONMENT,
            start_new_session=True,
        ) as process:
            try:
                code = process.wait()
            finally:
                process.terminate()  # nothing, if it has ended
        answer = find_json(Path(folder, ANSWER))
    if "made" in answer:
        return dict(answer["made"])
    if "mistake" in answer:
        raise UserError(**answer["mistake"])
    kind = TransientError if answer.get("may_pass") else JobFailed
    raise kind(answer.get("error", f"its process ended with {code}"))


def main() -> None:
    """Make the call in a folder as the command would, and write down its answer."""
    from amazon_electra.flows.cli import run_commands
    from amazon_electra.flows.cli.main import attempt

    folder = Path(sys.argv[1])
    call = read_json(folder / CALL)

    def work() -> None:
        answer = dict[str, Any]()
        try:
            answer["made"] = getattr(run_commands, call["name"])(call["given"], **call["options"])
        except UserError as mistake:
            answer["mistake"] = mistake.describe()
            raise
        except Exception as error:
            error_text = str(error) if isinstance(error, JobFailed) else describe_error(error)
            answer |= {"error": error_text, "may_pass": isinstance(error, TransientError)}
            raise
        finally:
            write_json(folder / ANSWER, answer)

    sys.exit(attempt(work))


if __name__ == "__main__":
    main()
