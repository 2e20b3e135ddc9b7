"""Searches and cells of a study are made after their teachers, once; the jobs themselves are noted,
not run.
"""

import json
import time

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.runner import stage_runner
from amazon_electra.flows.runner.prefect_tasks import PrefectStageMaker
from amazon_electra.flows.runner.processes import StageProcesses
from amazon_electra.flows.runner.stage_runner import StageRunner
from amazon_electra.flows.stages.evaluation import build_evaluation_stage
from amazon_electra.flows.store.group import Group
from amazon_electra.flows.store.stage import Stage
from amazon_electra.model.tracking.mlflow_run import Tracking
from tests.flows.calls import call_of
from tests.flows.studies.loaded import SPACE, build_stages, content_of


def chain_of_teachers(made):
    """Written with the last student first."""
    electra = str(made / "electra")
    return [
        {"name": "student", "encoder": electra, "teacher": "arm:assistant"},
        {"name": "assistant", "encoder": electra, "teacher": "arm:teacher"},
        {"name": "alone", "encoder": electra, "settings": {"epochs": 1}},
        {"name": "teacher", "encoder": electra},
    ]


@pytest.fixture
def noted(monkeypatch):
    """Jobs that leave at once what a real one would have left at its end."""
    jobs: list[Stage] = []

    class Noted(StageProcesses):
        def follow(self, stage):
            yield {"is": "begun"}
            folder = self._store.folder(stage)
            folder.mkdir(parents=True, exist_ok=True)
            if stage.name == "evaluation":
                self._store.publish(stage, json.loads((folder / stage.written_last).read_text()))
                return
            jobs.append(stage)
            (folder / "metrics.jsonl").write_text(
                "".join(f'{{"step": {i}, "time": {i}, "loss": {1 / i}}}\n' for i in (1, 2))
            )
            if stage.config.settings.get("epochs") == "7":
                time.sleep(1)  # the other cell beside it is complete by then, and must stay so
                raise UserError("every learning rate diverged")
            else:
                evaluation = self._store.folder(build_evaluation_stage(stage))
                evaluation.mkdir(parents=True, exist_ok=True)
                result = {"metrics": {"accuracy": {"value": 0.75}}, "split": "test"}
                (evaluation / "metrics.json").write_text(json.dumps(result))
            self._store.publish(stage, {})

    monkeypatch.setattr(stage_runner, "StageProcesses", Noted)
    return jobs


def test_every_search_and_cell_comes_after_its_teacher(made):
    search = {"trials": 3, "space": SPACE}
    stages = build_stages(content_of(made, chain_of_teachers(made), search=search), made / "search")
    order = [stage.path for chain in stages.list_chains() for stage in chain]
    assert len(order) == len({*order}) == 4 + 2 * 4
    cells = {cell.arm: cell.finetuned for cell in stages.cells}
    for name, taught in (("assistant", "teacher"), ("student", "assistant")):
        assert cells[name].inputs["teacher"].path == cells[taught].path
        steps = cells[taught], cells[name].inputs["search"], cells[name]
        places = [order.index(stage.path) for stage in steps]
        assert places == sorted(places)
    for number, cell in enumerate(cells.values(), 1):
        found = cell.inputs["search"]
        stages.store.folder(found).mkdir(parents=True)
        best = json.dumps({"settings": {"batch": number}})
        (stages.store.folder(found) / "best.json").write_text(best)
        stages.store.publish(found, {})
        assert call_of(cell, stages.store)["config"].settings["batch"] == str(number)


def test_a_cell_that_fails_leaves_the_others_and_its_students_are_not_tried(
    made, noted, call_in_flow
):
    arms = chain_of_teachers(made)
    arms[3]["settings"] = {"epochs": 7}
    stages = build_stages(content_of(made, arms), made / "failing")
    maker = PrefectStageMaker(StageRunner(stages.store, [], Tracking("sqlite:///")))
    groups = (group for group in [Group(stages.list_chains(), 2)])
    with pytest.raises(UserError) as told:
        call_in_flow(lambda: maker.make_graph(groups))
    assert "3 of 4 failed; the first: teacher · polarity · seed 0" in str(told.value)
    assert len(noted) == 2
    complete = [cell for cell in stages.cells if stages.store.manifest(cell.evaluated)]
    assert [cell.arm for cell in complete] == ["alone"]
