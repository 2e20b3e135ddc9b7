"""The stages of a study follow from what its file says: its cells, searches, pre-trainings,
and encoders; no job is run.
"""

import json
from dataclasses import replace

import pytest

from amazon_electra.flows.configuration.form import StudyForm
from amazon_electra.flows.stages.origin import build_external_stage
from amazon_electra.flows.stages.pretraining import TrainingConfig, build_training
from amazon_electra.flows.store.stage import Resources, list_stages
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.studies.study_file import load_study
from amazon_electra.flows.studies.study_stages import list_sources
from amazon_electra.flows.study import graph as study_graph
from tests.flows.calls import call_of
from tests.flows.fakes import FakeStage
from tests.flows.forms import fill_parameters
from tests.flows.made import plan_stages
from tests.flows.studies.loaded import SPACE, build, content_of, write_form
from tests.model.synthetic_shards import write_shards


def test_a_search_belongs_to_all_that_its_trials_depend_on(made):
    search = {"trials": 3, "space": SPACE}
    polarity = {"task": "polarity", "data": str(made / "corpus")}
    changed = [
        {},
        {"search": search | {"trials": 4}},
        {"settings": {"epochs": 2}},
        {"tasks": [polarity | {"task": "stars"}]},
        {"arms": [{"name": "one", "encoder": str(made / "other")}]},
        {"seeds": [1]},
    ]

    def fingerprint(change):
        [cell] = build(content_of(made, **{"search": search} | change), made / "prints")
        return cell.inputs["search"].fingerprint

    fingerprints = [fingerprint(change) for change in changed]
    assert len(set(fingerprints)) == len(changed)
    weights = made / "other" / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + b"\0")
    assert fingerprint(changed[4]) != fingerprints[4]


def test_a_study_finds_what_a_run_on_the_same_dump_has_made(tmp_path):
    """Its random arm too, which depends on the shape of the encoder alone."""
    store = Store(tmp_path)
    parameters = fill_parameters(
        ["finetuning.seeds=0", "pretraining.steps=9", "finetuning.arms=pre-trained,random"],
        dump={"paths": ["sample:50"]},
        store=str(tmp_path),
    )
    run = plan_stages(parameters, store)
    shards = {"shards": "${shards}", "set": {"steps": 9}}
    written = {
        "recipe": "sample",
        "settings": {"selection": "cross-validation"},
        "seeds": [0],
        "arms": [
            {"name": "pre-trained", "pretraining": shards},
            {"name": "untrained", "encoder": "random", "architecture": "arm:pre-trained"},
            {"name": "given", "encoder": "${encoder}"},
            {"name": "of its shape", "encoder": "random", "architecture": "${encoder}"},
        ],
        "tasks": [{"task": task, "data": "${corpus}"} for task in ("polarity", "stars")],
    }
    asked = {name: getattr(parameters, name) for name in StudyForm.sections[1:]}
    form = StudyForm(**asked, study=write_form(written, tmp_path).study)
    study = list_stages(study_graph(form, load_study(form), store), store)
    of_run = ("model", "report")
    made_by_run = {stage.fingerprint for stage in run if stage.name not in of_run}
    made_by_study = {stage.fingerprint for stage, _ in study if stage.name != "study"}
    assert made_by_study == made_by_run


def test_a_random_encoder_begins_as_its_pre_training(made, tmp_path):
    shards = write_shards(tmp_path / "shards", size=4000, length=64)
    own = {"shards": str(shards), "set": {"initializer_range": 0.05}}
    random = {"name": "random", "encoder": "random", "architecture": "arm:one"}
    arms = [{"name": "one", "pretraining": own}, random]
    store = Store(tmp_path / "store")
    _, begun = build(content_of(made, arms, seeds=[0]), store.root)
    assert begun.parameters["weights"]["initializer_range"] == 0.05
    call_of(begun, store, tmp_path / "begun")
    config = json.loads((tmp_path / "begun" / "architecture" / "config.json").read_text())
    assert config["pretraining_start"]["initializer_range"] == 0.05


def test_every_arm_is_pre_trained_once_with_each_seed_and_random_ones_with_none(made, tmp_path):
    arms = [
        {"name": "trained", "pretraining": {"shards": str(made / "shards")}},
        {"name": "random", "encoder": "random", "architecture": "arm:trained"},
    ]
    content = content_of(made, arms, seeds=[0, 1], pretraining_seeds=[3, 4])
    cells = build(content, tmp_path / "store")
    trainings = list_sources(cells, "pretraining")
    assert [stage.parameters["settings"]["seed"] for stage in trainings] == ["3", "4"]
    told = [(c.labels["arm"], c.labels.get("pretraining_seed"), c.config.seed) for c in cells]
    pre = [("trained", p, s) for p in "34" for s in (0, 1)]
    assert told == [*pre, ("random", None, 0), ("random", None, 1)]
    assert len({cell.fingerprint for cell in cells}) == 6


def test_equal_flops_gives_the_cheaper_objective_more_steps(tmp_path):
    store = Store(tmp_path / "store")
    place = write_shards(tmp_path / "shards", size=4000, length=64)
    of_all = build_external_stage(str(place), store), Resources(device="cpu")
    electra = build_training(TrainingConfig(recipe="sample", settings={"steps": "1000"}), *of_all)
    same = {"settings": {"objective": "mlm"}, "same_flops_as": electra.fingerprint}
    mlm = build_training(TrainingConfig(recipe="sample", **same), *of_all, equal=electra)
    steps = mlm.count_steps(store)
    assert steps == pytest.approx(1290, abs=30)  # by the published count it would be 1,640
    on_gpu = replace(mlm, resources=Resources(device="cuda"))
    assert on_gpu.count_steps(store) < steps  # attention weighs less there


@pytest.mark.parametrize(
    ("settings", "folder"),
    [({}, "discriminator"), ({"objective": "mlm"}, "encoder"), ({"batch": "8"}, "discriminator")],
)
def test_the_encoder_of_a_study_is_the_one_its_pre_training_leaves(
    settings, folder, made, tmp_path
):
    store = Store(tmp_path)
    shards = FakeStage("shards", 0, {})
    encoder = build_training(
        TrainingConfig(recipe="sample", settings=settings), shards, Resources()
    )
    written = content_of(made, [{"name": "one", "encoder": "${encoder}"}])
    [cell] = build(written, tmp_path, {"encoder": encoder})
    call = call_of(cell, store)
    assert call["encoder"] == f"{store.folder(encoder)}/{folder}"


def test_a_cell_takes_the_settings_of_its_search(made):
    store, search = Store(made / "search"), {"trials": 3, "space": SPACE}
    [cell] = build(content_of(made, search=search), store.root)
    found = cell.inputs["search"]
    store.folder(found).mkdir(parents=True)
    best = json.dumps({"settings": {"batch": 7}})
    (store.folder(found) / "best.json").write_text(best)
    store.publish(found, {})
    assert call_of(cell, store)["config"].settings["batch"] == "7"
