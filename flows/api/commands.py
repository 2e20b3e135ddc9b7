"""`run` and `score` as functions: what the commands of these names do.

Each works in a process of its own: Prefect reads its settings when it is imported, and a notebook
may have imported it; and Ctrl-C ends the run as in a terminal.
"""

import inspect
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.children import bind_command
from amazon_electra.beam_jobs.core.command import USER_ERROR
from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.beam_jobs.core.nesting import find_json, read_json
from amazon_electra.beam_jobs.core.settings import Settings, describe_unknown
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.flows.cli.stores import build_store
from amazon_electra.flows.configuration.form import Parameters, Scoring
from amazon_electra.flows.configuration.form_tools import fill_form
from amazon_electra.flows.runner.processes import PYTHON_ENVIRONMENT

Section = Mapping[str, Any] | Settings
Dump = str | Path | Sequence[str | Path] | Section
REQUEST, RESULT = "request.json", "result.json"


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
    dump: Dump,
    *,
    store: str | Path | None = None,
    recipe: str = "auto",
    labels: Sequence[str] = (),
    **sections: Section,
) -> RunResult:
    """Run the whole graph on a dump, as `amazon-electra run` does, and return what it made.

    `dump` is a file, folder, glob or address of reviews, a list of these, `sample:NUMBER`, or all
    fields of the section: `{"paths": ["shop.csv"], "columns": "text=body,stars=score"}`. `store` is
    the folder or address of all results (default: AMAZON_ELECTRA_STORE, else `store`), `labels` are
    columns with classes of your own. `sections` are those of the form, for example
    `finetuning={"seeds": [0, 1]}`.

    Prints what the command prints. The same call continues a run that was interrupted, and makes
    nothing anew. Raises UserError for what only the user can put right, TransientError where the
    same call may pass later, and JobFailed for any other failure.
    """
    about = describe_dump(dump) | ({"labels": list(labels)} if labels else {})
    check_names(run, Parameters, sections)
    place = build_store(store).address
    form = fill_form(Parameters, **sections, dump=about, recipe=recipe, store=place)
    made = call_command("run", form)
    return RunResult(
        folder=Path(made["folder"]),
        report=Path(made["report"]) if "report" in made else None,
        model=Path(made["model"]) if "model" in made else None,
        models={task: Path(folder) for task, folder in made["models"].items()},
        registered=made.get("registered", ""),
    )


def score(
    dump: Dump,
    output: str | Path = "scores",
    *,
    model: str | Path | Section | None = None,
    alias: str | None = None,
    store: str | Path | None = None,
    format: str = "",
    id: str = "",
    explain: bool = False,
    **sections: Section,
) -> ScoreResult:
    """Label every record of a dump, as `amazon-electra score` does; return where the scores are.

    The model is the folder `model`, or the one that has this `alias` in the registry of the store,
    or else the champion of each task, or its newest model; `model={"task": "stars"}` takes that of
    one task.
    Each file is a copy of its input with the answers beside its columns; with `format` parquet or
    csv a table with the probability of each class, and with the column `id` (empty: found by
    its name). `explain` adds the phrases with the largest weight for each answer. `sections` are
    those of the form. Raises as `run`.
    """
    output = str(output) if storage.is_remote(str(output)) else str(Path(output).absolute())
    folder = str(Path(model).absolute()) if isinstance(model, str | Path) else None
    of_registry = dict(model) if isinstance(model, Mapping | Settings) else {}
    scores = dict(sections.pop("scores", {}))
    given = {
        "dump": {"id": id or None, **describe_dump(dump)},
        "model": {"alias": alias, **of_registry},
        "scores": {"format": format or None, "explain": explain, **scores},
    }
    check_names(score, Scoring, sections)
    place = build_store(store).address
    form = fill_form(Scoring, **sections, **given, output=output, store=place)
    made = call_command("score", form, folder)
    files = tuple(storage.join_path(made["folder"], name) for name in made["files"])
    return ScoreResult(made["folder"], files, tuple(made["results"]))


def describe_dump(dump: Dump) -> dict[str, Any]:
    """Return the form's section of the dump."""
    if isinstance(dump, Mapping | Settings):
        return dict(dump)
    return {"paths": [str(path) for path in ([dump] if isinstance(dump, str | Path) else dump)]}


def check_names(
    function: Callable[..., Any], form: type[Settings], sections: Mapping[str, Section]
) -> None:
    """Raise UserError for a section that the form does not have."""
    *arguments, _ = inspect.signature(function).parameters
    for name in sections.keys() - form.model_fields:
        known = dict.fromkeys((*arguments, *form.model_fields))
        raise UserError(describe_unknown(name, known, "argument"), name)


def call_command(command: str, form: Settings, model: str | None = None) -> dict[str, Any]:
    """Carry a command out in a process of its own, print what it prints and return its result; it
    ends with this process.
    """
    with tempfile.TemporaryDirectory() as folder:
        request = {"form": form.model_dump(mode="json"), "model": model}
        write_json(Path(folder, REQUEST), request)
        job = [sys.executable, "-m", "amazon_electra.flows.api.commands", command, folder]
        process = subprocess.Popen(
            bind_command(job),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | PYTHON_ENVIRONMENT,
            start_new_session=True,
            encoding="utf-8",
            errors="replace",
        )
        assert process.stdout is not None
        last = ""
        with process:
            try:
                for line in process.stdout:
                    print(line.removesuffix("\n"), flush=True)
                    last = line.strip() or last
            finally:
                process.terminate()  # nothing, if it has ended
        made = dict(find_json(Path(folder, RESULT)))
    if process.returncode == 0:
        return made
    if "mistake" in made:
        raise UserError(**made["mistake"])
    kinds = {USER_ERROR: UserError, os.EX_TEMPFAIL: TransientError}
    message = last.removeprefix("error: ").removeprefix("failed: ")
    raise kinds.get(process.returncode, JobFailed)(message)


def main() -> None:
    """Carry out the request in a folder, as the command would."""
    from amazon_electra.flows.cli.main import attempt
    from amazon_electra.flows.cli.running import execute_graph, execute_scoring

    command, folder = sys.argv[1], Path(sys.argv[2])
    request = read_json(folder / REQUEST)
    form = request["form"]

    def work() -> None:
        try:
            if command == "run":
                made = execute_graph(Parameters(**form), build_store(form["store"]))
            else:
                made = execute_scoring(Scoring(**form), request["model"])
        except UserError as mistake:
            write_json(folder / RESULT, {"mistake": mistake.describe()})
            raise
        write_json(folder / RESULT, made)

    sys.exit(attempt(work, form["store"]))


if __name__ == "__main__":
    main()
