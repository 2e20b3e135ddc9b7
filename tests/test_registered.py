"""Every class that a run can name is registered where the process that needs it looks."""

import json
import os
import subprocess
import sys

PROGRAM = """
import importlib, json, pkgutil

import amazon_electra
import amazon_electra.flows.stages.all
from amazon_electra.beam_jobs.reading.format import Format
from amazon_electra.beam_jobs.reading.formats import list_formats
from amazon_electra.flows.store.stage import Stage
from amazon_electra.model.arms import list_arms
from amazon_electra.model.arms.arm import Arm
from amazon_electra.model.finetuning import tasks
from amazon_electra.model.pretraining.objectives import OBJECTIVES, Objective

found = {
    "stages": [list(Stage.registry), Stage],
    "arms": [list(list_arms()), Arm],
    "formats": [list(list_formats()), Format],
    "objectives": [list(OBJECTIVES), Objective],
    "tasks": [list(tasks.TASKS), []],
}
for module in pkgutil.walk_packages(amazon_electra.__path__, "amazon_electra."):
    if module.name == "amazon_electra.model.tracking.serving":
        continue  # only MLflow loads it, from a copy beside the model
    there = importlib.import_module(module.name)
    if module.name.startswith(tasks.__name__ + "."):
        found["tasks"][1] += [task.name for task in getattr(there, "TASKS", ())]


def list_names(kind):
    for one in kind.__subclasses__():
        yield from [one.name] if "name" in vars(one) else []
        yield from list_names(one)


for kind, (registered, there) in found.items():
    names = there if isinstance(there, list) else list(list_names(there))
    assert names, kind
    found[kind] = [sorted(registered), sorted(names)]
print(json.dumps(found))
"""
"""Asks what is registered, then imports every module and looks for what there is."""


def test_all_that_is_there_is_registered():
    environment = {n: v for n, v in os.environ.items() if n != "AMAZON_ELECTRA_PLUGINS"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    for kind, (registered, there) in json.loads(done.stdout.splitlines()[-1]).items():
        assert registered == there, kind
