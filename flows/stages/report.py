"""The report: every comparison with its interval and test, the loss curves, the model card."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from beam_jobs.job.files import write_json
from flows.configuration.parameters import Addition, Parameters
from flows.configuration.settings import list_changes
from flows.runner.store import Manifest, Stage, Store
from flows.stages.external import locate_encoder
from flows.stages.finetuning import Cell, locate_results
from flows.stages.origin_folder import get_name, read_origin


def build_report_stage(
    command: str,
    preset: str,
    dump: Stage,
    made: Sequence[Stage],
    encoder: Stage,
    cells: Sequence[Cell],
) -> Stage:
    """Return the stage of the report; `command` gives it again, `made` are the stages whose counts
    it shows, in the order of the graph.
    """
    inputs = {cell.finetuned.title: cell.evaluated for cell in cells}
    origin = find_origin(made)
    title = f"{dump.result['name']} with preset {preset}"
    title += f" from {get_name(origin)}" if origin else ""

    def prepare_arguments(store: Store, folder: Path) -> list[str]:
        study = folder / "study.json"
        write_json(study, describe_study(store, title, command, made, encoder, cells))
        return ["--study", str(study), "--output", str(folder)]

    return Stage(
        "report",
        5,
        {"title": title},
        {**inputs, "encoder": encoder},
        "model.report.report",
        prepare_arguments,
    )


def describe_study(
    store: Store,
    title: str,
    command: str,
    made: Sequence[Stage],
    encoder: Stage,
    cells: Sequence[Cell],
) -> dict[str, Any]:
    """Return the study as the report's job reads it."""
    origin = find_origin(made)
    name = f"adaptation of {get_name(origin)}" if origin else "in-domain ELECTRA"
    trained = store.fetch(encoder, "metrics.jsonl", "result.json", "config.json")
    return {
        "title": title,
        "store": str(store.root),
        "command": command,
        **describe_stages(store, made),
        "arms": _describe_arms(store, cells),
        "pretraining": [
            {
                "name": name,
                "metrics": str(trained / "metrics.jsonl"),
                **tell_written(store, encoder),
            }
        ],
        "model": locate_encoder(store, encoder),
        **describe_origins(store, [origin] if origin else []),
        "cells": [
            {
                "arm": c.arm,
                "task": c.task,
                "seed": c.seed,
                **locate_results(store, c.finetuned, c.evaluated),
            }
            for c in cells
        ],
    }


def find_origin(made: Sequence[Stage]) -> Stage | None:
    """Return the published encoder among the stages of a run, or None."""
    return next((stage for stage in made if stage.name == "origin"), None)


def describe_origins(store: Store, origins: Sequence[Stage]) -> dict[str, Any]:
    """Return what is known of the published encoders that arms begin with, by fingerprint."""
    told = {one.fingerprint: read_origin(store, one) for one in origins}
    return {"origins": told} if told else {}


def format_command(asked: Parameters | Addition) -> str:
    """Return the command that gives this report again, as a shell reads it."""
    words = ["amazon-electra", "run", "--dump", *asked.dump.paths, "--store", asked.store]
    words += (
        ["--add-to", asked.increment.base]
        if isinstance(asked, Addition)
        else ["--preset", asked.preset]
    )
    return shlex.join([*words, *list_changed_settings(asked)])


def list_changed_settings(asked: Parameters | Addition) -> list[str]:
    """Return `--set` for whatever is not as by default; the dump and the base have options of their
    own.
    """
    texts = [
        text
        for text in list_changes(asked)
        if not text.startswith(("dump.paths=", "increment.base="))
    ]
    return [word for text in texts for word in ("--set", text)]


def _describe_arms(store: Store, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return for each arm whether the store tells what its encoder has seen, and for which tasks
    the test texts were no part of it; `withhold_own`: false where near copies of them were left.
    """
    told: dict[str, dict[str, Any]] = {}
    for cell in cells:
        encoder, corpus = cell.finetuned.inputs.get("encoder"), cell.finetuned.inputs["data"]
        if cell.arm not in told:
            told[cell.arm] = {"name": cell.arm}
            if encoder:
                made = store.manifest(encoder)
                told[cell.arm] |= {"data_known": False, **trace_origin(store, made)}
                if written := tell_written(store, encoder):
                    told[cell.arm]["written_steps"] = [written["written_step"]]
                if made is None or made["stage"] != "pretraining":
                    continue
                corpora = _list_corpora(store, made)
                withholds_own = all("withhold_own" not in one["parameters"] for one in corpora)
                held_out = withholds_own and _is_held_out(store, corpora, corpus.fingerprint)
                tasks = list(dict.fromkeys(c.task for c in cells)) if held_out else []
                told[cell.arm] |= {"data_known": True, "held_out": tasks}
                told[cell.arm] |= {} if withholds_own else {"withhold_own": False}
    return list(told.values())


def tell_written(store: Store, encoder: Stage) -> dict[str, int]:
    """Return the step whose state a pre-training wrote, 0 being what it began with, where a probe
    chose among several.
    """
    made = store.manifest(encoder)
    step = made["result"].get("written_step") if made else None
    return {} if step is None else {"written_step": step}


def trace_origin(store: Store, made: Manifest | None) -> dict[str, str]:
    """Return the fingerprint of the published encoder that one began with, if it did."""
    lineage = store.trace_lineage(made) if made else []
    found = [origin["fingerprint"] for _, origin in lineage if origin["stage"] == "origin"]
    return {"origin": found[0]} if found else {}


def _list_corpora(store: Store, encoder: Manifest) -> list[Manifest]:
    """Return every corpus that an encoder was made of; one says `withhold_own` among its
    parameters where it is off (flows/stages/corpus.py).
    """
    return [made for _, made in store.trace_lineage(encoder) if made["stage"] == "corpus"]


def _is_held_out(store: Store, corpora: Sequence[Manifest], corpus: str) -> bool:
    """Return whether each of these corpora, which an encoder was made of, is this one, or was made
    later without the texts of this one.
    """
    every = [{made["fingerprint"] for _, made in store.trace_lineage(one)} for one in corpora]
    return bool(every) and all(corpus in made_of for made_of in every)


def describe_stages(store: Store, made: Sequence[Stage]) -> dict[str, Any]:
    """Return the dump, and what every stage that is complete counted."""
    manifests = [manifest for stage in made if (manifest := store.manifest(stage))]
    dump = next((stage for stage in made if stage.name == "dump"), None)
    return {
        "dump": {"name": dump.result["name"], "fingerprint": dump.fingerprint, **dump.parameters}
        if dump
        else {},
        "stages": [
            {
                "stage": m["title"],
                "fingerprint": m["fingerprint"],
                "counts": m["result"],
                "seconds": m.get("seconds", 0.0),
                "cpu_seconds": m.get("cpu_seconds", 0.0),
            }
            for m in manifests
        ],
    }
