"""Every shipped study is read, checked and planned as it is."""

import pytest

from amazon_electra.flows.configuration.study_file import StudyChoice
from amazon_electra.flows.store.group import list_stages
from amazon_electra.flows.store.store import Store
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


@pytest.mark.parametrize("name", list_shipped_studies())
def test_a_shipped_study_is_planned_with_all_its_cells(name, tmp_path, encoder):
    wanted = list_variables(read_yaml(find_study_file(name)))
    (tmp_path / "general.txt").write_text("An encyclopaedia says so.")
    texts = [str(tmp_path / "general.txt")] if "general_shards" in wanted else []
    settings = [f"pretraining.start_from={encoder}"] if "origin" in wanted else []
    given = {"dump": {"paths": ["sample:50"]}, "store": str(tmp_path / "store")}
    form = fill_parameters(settings, **given, recipe="sample")
    loaded = load_study(form, StudyChoice(file=name, general_text=texts))
    store, study = Store(form.store), loaded.study
    stages = [stage for stage, _ in list_stages(graph(form, loaded, store), store)]
    for one in (stage for stage in stages if stage.has_job):
        assert cross(one).fingerprint == one.fingerprint
    cells = {s.label.partition(" · seed ")[0] for s in stages if s.name == "evaluation"}
    assert {f"{arm.name} · {task.name}" for arm in study.arms for task in study.tasks} <= cells
    assert stages[-1].name == "study"
