"""The `amazon-electra` command. Exit codes: 0 done, 1 failed, 2 the user's mistake (one line that says what to do).

Everything heavy is imported by the command that needs it: `--help` answers at once.
"""

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from beam_jobs.command import MayPass, UserMistake
from flows import dumps, in_terminal, study_command
from model.presets import PRESETS


def parser() -> argparse.ArgumentParser:
    main_parser = argparse.ArgumentParser(
        prog="amazon-electra",
        description="From dumps of product reviews to an ELECTRA adapted to them, and what the adaptation was worth.",
    )
    commands = main_parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_sample(commands)
    _add_run(commands)
    study_command.add_study(commands, tuple(PRESETS))
    dumps.add_commands(commands)
    runs = commands.add_parser("runs", help="what is in the store", description="The complete stages of a store.")
    runs.set_defaults(do=list_runs)
    show = commands.add_parser("show", help="one stage and its lineage", description="A stage and what it was made of.")
    show.add_argument("fingerprint", help="of a stage, or how it begins")
    show.set_defaults(do=show_stage)
    up = commands.add_parser(
        "up",
        help="start the Prefect and MLflow servers and serve the deployments",
        description="Prefect server, MLflow server and the served deployments on 127.0.0.1; Ctrl-C ends all of it.",
    )
    up.add_argument("--detach", action="store_true", help="return once all is up; `down` ends it")
    up.add_argument("--prefect-port", type=int, default=4200, help="(default: 4200)")
    up.add_argument("--mlflow-port", type=int, default=5000, help="(default: 5000)")
    up.set_defaults(do=start_servers)
    status = commands.add_parser("status", help="whether the servers are up and well")
    status.set_defaults(do=print_status)
    down = commands.add_parser("down", help="end what `up` started")
    down.set_defaults(do=stop_servers)
    promote = commands.add_parser("promote", help="make a model of the registry the champion")
    promote.add_argument("version", help="its number in the MLflow registry, or how its encoder's fingerprint begins")
    promote.add_argument("--reason", default="by hand", help="kept with the model")
    promote.set_defaults(do=promote_version)
    rollback = commands.add_parser("rollback", help="make the model the champion that the champion replaced")
    rollback.set_defaults(do=roll_back)
    for command in (runs, show, up, status, down, promote, rollback):
        in_terminal.add_store(command)
    return main_parser


def _add_sample(commands: Any) -> None:
    sample = commands.add_parser(
        "sample", help="write a synthetic dump", description="Readable synthetic reviews with the mess of real dumps."
    )
    sample.add_argument("--reviews", type=int, default=20_000, help="how many (default: 20000)")
    sample.add_argument("--seed", type=int, default=0, help="the same seed gives the same bytes (default: 0)")
    sample.add_argument("--output", type=Path, required=True, help="the file; gzipped when its name ends in .gz")
    sample.set_defaults(do=write_sample)


def _add_run(commands: Any) -> None:
    run = commands.add_parser(
        "run",
        help="run the whole graph on a dump",
        description="Dump → corpus → vocabulary → shards → pre-training → fine-tuning → report. What the store holds "
        "already is not made again; a run that was interrupted continues.",
    )
    run.add_argument("--dump", nargs="+", metavar="PATH", help="files or globs of reviews, or sample:NUMBER")
    run.add_argument(
        "--preset", choices=tuple(PRESETS), help="size of the model and length of its training (default: tiny)"
    )
    run.add_argument(
        "--add-to",
        metavar="BASE",
        help="add the dump to what this model has seen: a fingerprint of `runs`, champion, or last (newest model)",
    )
    in_terminal.add_store(run)
    run.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="SECTION.FIELD=VALUE",
        help="any other setting, for example pretraining.steps=500 or finetuning.seeds=0,1; --dry-run prints them all",
    )
    run.add_argument("--dry-run", action="store_true", help="print the settings, the stages and which are complete")
    run.set_defaults(do=run_graph)


def write_sample(arguments: argparse.Namespace) -> None:
    from beam_jobs.sample_dump import write_sample

    if arguments.reviews < 1:
        raise UserMistake(f"--reviews {arguments.reviews}: write at least 1")
    try:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        result = write_sample(arguments.output, arguments.reviews, arguments.seed)
    except OSError as error:
        raise UserMistake(f"--output {arguments.output}: cannot be written: {error.strerror or error}") from None
    print(json.dumps(result))


def run_graph(arguments: argparse.Namespace) -> None:
    form = asked(arguments)
    if arguments.dry_run:
        print_plan(form)
    else:
        execute(form)


def asked(arguments: argparse.Namespace) -> Any:
    """The form of a whole run, or of one that adds a dump to a base."""
    from flows.parameters import Addition, Parameters
    from flows.settings import filled

    given = {"dump": {"paths": arguments.dump}} if arguments.dump else {}
    store = str(_root(arguments))
    if not arguments.add_to:
        return filled(Parameters, arguments.settings, preset=arguments.preset or "tiny", store=store, **given)
    if arguments.preset:
        raise UserMistake(f"--preset {arguments.preset}: the base's preset is kept; leave it out beside --add-to")
    return filled(Addition, arguments.settings, increment={"base": arguments.add_to}, store=store, **given)


def print_plan(form: Any) -> None:
    """The resolved settings as JSON, then a line per stage."""
    os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
    from flows import add_dump, domain_adaptation
    from flows.completion import Plan
    from flows.parameters import Addition
    from flows.store import Store

    plan = Plan(Store(form.store))
    settings, graph = add_dump.prepared(form) if isinstance(form, Addition) else (form, domain_adaptation.graph)
    graph(settings, plan)
    print(json.dumps({**form.model_dump(), **settings.model_dump()}, indent=2))
    in_terminal.print_stages(plan)


def execute(form: Any) -> None:
    """Runs the graph here."""

    def run() -> dict[str, Any]:
        from flows.add_dump import add_dump
        from flows.domain_adaptation import domain_adaptation
        from flows.parameters import Addition

        flow: Any = add_dump if isinstance(form, Addition) else domain_adaptation
        return flow(**{name: getattr(form, name) for name in type(form).model_fields})

    began = time.monotonic()
    made = in_terminal.shown(form, run)
    print_end(made, Path(form.store), time.monotonic() - began)


def print_end(made: dict[str, Any], store: Path, seconds: float) -> None:
    """What came out and where it is."""
    from flows import servers
    from flows.results import print_results

    if not Path(made["report"]).exists():
        print(f"nothing in the dump is new; the model is still the base's, {made['folder']}")
        return
    print_results(Path(made["folder"]))
    up = servers.running(store)
    how = f"amazon-electra up --store {os.path.relpath(store)}"
    print(f"report      {made['report']}")
    print(f"model       {made['model']}")
    print(f"Prefect UI  {up.get('prefect') or how}")
    print(f"MLflow UI   {up.get('mlflow') or how}")
    print(f"done in     {seconds:,.1f} s")


def list_runs(arguments: argparse.Namespace) -> None:
    from flows.presentation import one_line

    for manifest in _store(arguments).manifests():
        when, cost = f"{manifest['finished']}  {manifest['fingerprint']}", f"{manifest.get('seconds', 0):>9,.1f} s"
        print(f"{when}  {cost}  {manifest['title']:<36} {one_line(manifest)}")


def show_stage(arguments: argparse.Namespace) -> None:
    """The manifest without its list of files, then everything it was made of."""
    store = _store(arguments)
    found = store.find(arguments.fingerprint)
    if not found:
        raise UserMistake(
            f"no complete stage {arguments.fingerprint} in {store.root}; `amazon-electra runs` lists them"
        )
    for manifest in found:
        folder = store.root / manifest["stage"] / manifest["fingerprint"]
        listed = {"folder": str(folder), **manifest, "files": len(manifest["files"])}
        print(json.dumps(listed, indent=2, ensure_ascii=False))
        for depth, origin in store.lineage(manifest):
            print(f"{'   ' * depth}{origin['title']}  {origin['fingerprint']}  {origin['finished']}")


def start_servers(arguments: argparse.Namespace) -> None:
    from flows import cockpit

    store, ports = _root(arguments), (arguments.prefect_port, arguments.mlflow_port)
    if arguments.detach:
        words = ["--store", str(store), "--prefect-port", str(ports[0]), "--mlflow-port", str(ports[1])]
        cockpit.detached(store, words)
    else:
        cockpit.up(store, *ports)


def print_status(arguments: argparse.Namespace) -> None:
    from flows import cockpit

    if not cockpit.status(_root(arguments)):
        sys.exit(1)


def stop_servers(arguments: argparse.Namespace) -> None:
    from flows import cockpit

    cockpit.down(_root(arguments))


def promote_version(arguments: argparse.Namespace) -> None:
    registry = _registry(arguments)
    try:
        version = registry.find(arguments.version)
    except ValueError as unknown:
        raise UserMistake(str(unknown)) from None
    waited = approved(arguments, registry, version)
    print(f"champion is version {version}{'; the run that waited for it goes on' if waited else ''}")


def approved(arguments: argparse.Namespace, registry: Any, version: str) -> bool:
    """Makes it the champion; a run that waits for this is told, where a Prefect server is up for the store."""
    from flows import servers

    root = _store(arguments).root
    with suppress(KeyError):
        os.environ.setdefault("PREFECT_API_URL", f"{servers.running(root)['prefect']}/api")
    os.environ.update(servers.environment(root))
    from flows.promotion import approve

    return approve(registry, version, arguments.reason)


def roll_back(arguments: argparse.Namespace) -> None:
    try:
        gone, back = _registry(arguments).rollback()
    except ValueError as nothing:
        raise UserMistake(str(nothing)) from None
    print(f"champion is version {back} again, instead of {gone}")


def _registry(arguments: argparse.Namespace) -> Any:
    from flows import servers
    from model.registry import Registry

    return Registry(servers.mlflow_uri(_store(arguments).root))


def _root(arguments: argparse.Namespace) -> Path:
    """Of the store, which need not be there yet."""
    from flows.store import Store

    return Store(arguments.store).root


def _store(arguments: argparse.Namespace) -> Any:
    from flows.store import Store

    store = Store(arguments.store)
    if not store.root.is_dir():
        raise UserMistake(f"--store {arguments.store}: no such folder")
    return store


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    sys.exit(attempt(arguments))


def attempt(arguments: argparse.Namespace) -> int:
    """The exit code; what went wrong is told in one line where its cause is known."""
    from flows.processes import JobFailed
    from flows.servers import QUIET, ServerFailed

    os.environ.update(QUIET)
    for name in [n for n, value in os.environ.items() if n.startswith(("PREFECT_", "MLFLOW_")) and not value]:
        del os.environ[name]  # what an .env file left empty: Prefect would take it for an empty password
    try:
        arguments.do(arguments)
    except UserMistake as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command continues where it stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    except MayPass as failure:
        print(f"failed: {failure}", file=sys.stderr)
        return os.EX_TEMPFAIL
    except (JobFailed, ServerFailed, OSError) as failure:
        print(f"failed: {failure}", file=sys.stderr)
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    main()
