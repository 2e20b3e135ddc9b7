"""`run` and `score` as functions: what the commands of these names do.

Each works in a process of its own (`python -m amazon_electra.flows.api.commands`): Prefect reads
its settings when it is imported, and a notebook may have imported it; torch, MLflow and Prefect
stay out of the caller's memory; and Ctrl-C ends the run as in a terminal, so that the same call
continues it.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.children import bind_command
from amazon_electra.beam_jobs.core.command import USER_ERROR
from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.beam_jobs.core.settings import Settings
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.flows.configuration.form import Parameters, Scoring
from amazon_electra.flows.configuration.form_tools import fill_form
from amazon_electra.flows.runner.processes import PYTHON_ENVIRONMENT
from amazon_electra.flows.store.store import Store

Section = Mapping[str, Any] | Settings
Dump = str | Path | Sequence[str | Path] | Section
REQUEST, RESULT = "request.json", "result.json"


@dataclass(frozen=True)
class RunResult:
    """What a run made."""

    folder: Path
    """Folder of the report: report.html, report.md, report.json."""
    report: Path
    """The report as a page."""
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
        return dict(json.loads((self.folder / "report.json").read_text(encoding="utf-8")))


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
    given: dict[str, Any] = {**sections, "store": _find_store(store), "dump": _describe_dump(dump)}
    if labels:
        given["dump"]["labels"] = list(labels)
    form = fill_form(Parameters, recipe=recipe, **given)
    made = _call("run", {"form": form.model_dump(mode="json")})
    return RunResult(
        folder=Path(made["folder"]),
        report=Path(made["report"]),
        model=Path(made["model"]) if "model" in made else None,
        models={task: Path(folder) for task, folder in made.get("models", {}).items()},
        registered=made.get("registered", ""),
    )


def score(
    dump: Dump,
    output: str | Path = "scores",
    *,
    model: str | Path | None = None,
    alias: str | None = None,
    store: str | Path | None = None,
    format: str = "",
    id: str = "",
    explain: bool = False,
    **sections: Section,
) -> ScoreResult:
    """Label every record of a dump, as `amazon-electra score` does; return where the scores are.

    The model is the folder `model`, or the one that has this `alias` in the registry of the store,
    or else the champion of each task, or its newest model.
    Each file is a copy of its input with the answers beside its columns; with `format` parquet, csv
    or jsonl a table with the probability of each class, and with the column `id` (empty: found by
    its name). `explain` adds the phrases with the largest weight for each answer. `sections` are
    those of the form. Raises as `run`.
    """
    output = str(output) if storage.is_remote(str(output)) else str(Path(output).absolute())
    given: dict[str, Any] = {
        **sections,
        "store": _find_store(store),
        "dump": _describe_dump(dump),
        "output": output,
    }
    given["dump"] = {"id": id or None, **given["dump"]}
    given["model"] = {"alias": alias, **dict(given.get("model", {}))}
    own = {"format": format or None, "explain": explain}
    given["scores"] = {**own, **dict(given.get("scores", {}))}
    form = fill_form(Scoring, **given)
    folder = str(Path(model).absolute()) if model else None
    made = _call("score", {"model": folder, "form": form.model_dump(mode="json")})
    names = [file["scores"] if isinstance(file, dict) else file for file in made["files"]]
    folder = made.get("folder", output)
    files = tuple(storage.join_path(folder, name) for name in names)
    return ScoreResult(folder, files, tuple(made.get("results", made["files"])))


def _find_store(given: str | Path | None) -> str:
    """Return the address of the store that is meant."""
    return Store(str(given or os.environ.get("AMAZON_ELECTRA_STORE") or "store")).address


def _describe_dump(dump: Dump) -> dict[str, Any]:
    """Return the form's section of the dump."""
    if isinstance(dump, Mapping | Settings):
        return dict(dump)
    paths = [dump] if isinstance(dump, str | Path) else dump
    return {"paths": [str(path) for path in paths]}


def _call(command: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Carry a request out in a process of its own, print what it prints and return its result; it
    ends with this process.
    """
    with tempfile.TemporaryDirectory() as folder:
        write_json(Path(folder) / REQUEST, request)
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
        result = Path(folder) / RESULT
        made = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {}
        if process.returncode:
            if "mistake" in made:
                raise UserError(**made["mistake"])
            raise_failure(process.returncode, last)
        return dict(made)


def raise_failure(code: int, line: str) -> NoReturn:
    """Raise the exception that an exit code of the command and its last line stand for."""
    message = line.removeprefix("error: ").removeprefix("failed: ")
    if code == USER_ERROR:
        raise UserError(message)
    if code == os.EX_TEMPFAIL:
        raise TransientError(message)
    raise JobFailed(message)


def main() -> None:
    """Carry out the request in a folder, as the command would."""
    from amazon_electra.flows.cli.main import attempt
    from amazon_electra.flows.cli.run_commands import execute_graph, label_dump, score_with_folder

    command, folder = sys.argv[1], Path(sys.argv[2])
    request = json.loads((folder / REQUEST).read_text(encoding="utf-8"))

    def work() -> None:
        made: dict[str, Any] = {}
        try:
            if command == "run":
                form = Parameters(**request["form"])
                made = execute_graph(form, Store(form.store))
            elif request["model"]:
                made = score_with_folder(request["model"], Scoring(**request["form"]))
            else:
                made = label_dump(Scoring(**request["form"]))
        except UserError as mistake:
            made = {"mistake": mistake.describe()}
            raise
        finally:
            write_json(folder / RESULT, made)

    sys.exit(attempt(work, request["form"]["store"]))


if __name__ == "__main__":
    main()
