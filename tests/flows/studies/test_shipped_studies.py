"""Every shipped study is read, checked and planned as it is; one goes from a dump to its report, on
few labels after few steps, by the real jobs in this process.
"""

import json
from pathlib import Path

import pytest
import yaml

from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.flows import run_stage
from amazon_electra.flows.configuration.form import Parameters
from amazon_electra.flows.configuration.study_file import StudyChoice
from amazon_electra.flows.store.group import Groups, list_stages
from amazon_electra.flows.store.stage import Stage, write_request
from amazon_electra.flows.store.store import REQUEST, Store
from amazon_electra.flows.studies.study_reading import (
    find_study_file,
    list_shipped_studies,
    list_variables,
    load_study,
    read_yaml,
)
from amazon_electra.flows.study import graph
from tests.flows.calls import cross
from tests.flows.forms import fill_parameters
from tests.flows.studies.loaded import write_general_text
from tests.model.encoders.checkpoints import write_checkpoint


def make(groups: Groups, store: Store) -> Stage:
    """Make the stages of a graph one after the other, without Prefect; return the last one."""
    for stage in (stage for group in groups for stage in group.stages):
        if not stage.has_job:
            store.publish(stage, dict(stage.result))
            continue
        folder = store.folder(stage)
        folder.mkdir(parents=True, exist_ok=True)
        stage.prepare(store, folder)
        write_json(folder / REQUEST, write_request([stage]))
        run_stage.run([str(store.root), stage.path])
    return stage


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """General text, and the store of all studies."""
    return write_general_text(tmp_path_factory.mktemp("shipped"))


def ask(name: str, file: Path, place: Path) -> tuple[Parameters, StudyChoice]:
    """Return form and choice of a study in a file, with whatever it needs."""
    variables = set(list_variables(read_yaml(file)))
    general = [str(place / "general.txt")] if "general_shards" in variables else []
    choice = StudyChoice(file=str(file), general_text=general, at_once=1)
    settings = ["shards.max_length=96"] if {"shards", "encoder"} & variables else []
    if "origin" in variables:
        published = write_checkpoint(
            place / "published", max_position_embeddings=128, num_hidden_layers=3
        )
        settings.append(f"pretraining.start_from={published}")
    else:
        settings.append("vocabulary.size=1000")
    if "encoder" in variables:
        settings.append("pretraining.steps=2")
    store = str(place / "store")
    given = {"dump": {"paths": ["sample:1200"]}, "store": store, "recipe": "sample"}
    return fill_parameters(settings, **given), choice


@pytest.mark.parametrize("name", list_shipped_studies())
def test_a_shipped_study_is_planned_with_all_its_cells(name, place):
    file = find_study_file(name)
    parameters, choice = ask(name, file, place)
    loaded = load_study(parameters, choice)
    store, study = Store(parameters.store), loaded.study
    stages = [stage for stage, _ in list_stages(graph(parameters, loaded, store), store)]
    for one in (stage for stage in stages if stage.has_job):
        assert cross(one).fingerprint == one.fingerprint
    cells = {s.label.partition(" · seed ")[0] for s in stages if s.name == "evaluation"}
    assert {f"{arm.name} · {task.name}" for arm in study.arms for task in study.tasks} <= cells
    assert stages[-1].name == "study"


def test_a_study_goes_from_the_dump_to_its_report(place, tmp_path, monkeypatch):
    written = read_yaml(find_study_file("encoders"))
    written["arms"][0]["pretraining"]["set"]["steps"] = 2
    written["seeds"], written["tasks"] = [0], written["tasks"][:2]
    written["settings"] |= {"n_dev": 8, "n_test": 16, "epochs": 1}
    for n_train, task in enumerate(written["tasks"], start=14):
        task["settings"] = {"n_train": n_train}
    file = tmp_path / "encoders.yaml"
    file.write_text(yaml.safe_dump(written, allow_unicode=True))
    parameters, choice = ask("encoders", file, place)
    store = Store(parameters.store)
    folder = store.folder(make(graph(parameters, load_study(parameters, choice), store), store))
    report = json.loads((folder / "report.json").read_text())
    tasks = [task["title"] for task in written["tasks"]]
    assert {(row["arm"], row["task"]) for row in report["results"]} == {
        (arm, task) for arm in ("adapted", "as published", "TF-IDF", "frozen") for task in tasks
    }
    assert [(d["a"], d["b"], d["task"]) for d in report["differences"]] == [
        ("adapted", other, task) for other in ("as published", "TF-IDF", "frozen") for task in tasks
    ]
    assert (folder / "report.html").stat().st_size > 10_000
    text = (folder / "report.html").read_text()
    assert (
        "They may include test texts, so the results of adapted, as published, frozen may be"
        in text
    )
    assert "Nothing is known of the texts" not in text
