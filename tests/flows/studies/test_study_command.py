"""`amazon-electra study`: its mistakes in one line, and studies on data that are there already."""

from collections import Counter

import pytest
import yaml

from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.flows import study
from amazon_electra.flows.cli import running
from amazon_electra.flows.cli.main import run_words
from amazon_electra.flows.configuration.form import Parameters
from amazon_electra.flows.configuration.study_file import StudyChoice
from amazon_electra.flows.stages.dump import build_dump_stage
from amazon_electra.flows.store import group
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.studies.study_reading import load_study
from amazon_electra.flows.study import graph
from tests.model.corpora import write_corpus, write_electra


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["nothing"], "nothing"),
        (["losses", "--dump", "sample:9", "--study.review", "x"], "--study.review"),
        (["losses", "--study.at-once", "0"], "--study.at-once 0"),
        (["losses", "--dump", "sample:9", "--study.general-text", "R.md"], "general-text R.md"),
        (
            ["losses", "--dump", "sample:9", "--study.temperature", "3"],
            "temperature",
        ),
        (["losses", "--dump", "sample:9", "--study.seeds", "x"], "--study.seeds x"),
        (["losses"], "--dump"),
    ],
)
def test_mistakes_are_told_in_one_line(words, named, tmp_path, capsys):
    assert run_words(["study", *words, "--store", str(tmp_path)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert named in line


def test_the_dump_is_listed_once(tmp_path, prefect_home, monkeypatch):
    listed = []

    def list_dump(*given):
        listed.append(given)
        return build_dump_stage(*given)

    for module in (running, study):
        monkeypatch.setattr(module, "build_dump_stage", list_dump)
    monkeypatch.setattr(study, "run_graph", lambda *given: {"folder": str(tmp_path)})
    monkeypatch.setattr(running.terminal, "run_in_terminal", lambda root, run, promotes: run())
    monkeypatch.setattr(running.terminal, "print_results", lambda folder: None)
    write_json(tmp_path / "report.json", {"answer": "Both."})
    words = ["study", "losses", "--dump", "sample:60", "--store", str(tmp_path / "store")]
    assert run_words(words) == 0
    assert len(listed) == 1


def test_without_a_dump_a_study_takes_what_is_there_and_other_data_are_another_study(tmp_path):
    write_corpus(tmp_path / "corpus")
    write_electra(tmp_path / "electra" / "discriminator")
    student = {"name": "half", "encoder": "half", "teacher": "arm:one"}
    arms = [{"name": "one", "encoder": str(tmp_path / "electra" / "discriminator")}, student]
    tasks = [{"task": "polarity", "data": str(tmp_path / "corpus")}]
    study = {"seeds": [0], "arms": arms, "tasks": tasks}
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(study))

    def list_stages():
        parameters = Parameters(recipe="sample", store=str(tmp_path / "store"))
        loaded = load_study(parameters, StudyChoice(file=str(tmp_path / "two.yaml")))
        store = Store(parameters.store)
        return [stage for stage, _ in group.list_stages(graph(parameters, loaded, store), store)]

    stages = list_stages()
    wanted = {"finetuning": 2, "evaluation": 2, "study": 1}
    assert Counter(stage.name for stage in stages) == wanted
    assert list_stages()[-1].fingerprint == stages[-1].fingerprint
    write_json(tmp_path / "corpus" / "corpus.json", {"read": 1})
    assert list_stages()[-1].fingerprint != stages[-1].fingerprint
