"""The graph in Prefect and MLflow: what is shown, what is retried, what is not made again."""

import shutil
from contextlib import nullcontext, suppress

import pytest
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, FlowRunFilter
from prefect.client.schemas.sorting import FlowRunSort

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.flows import domain_adaptation
from amazon_electra.flows.plan import plan_run
from amazon_electra.flows.runner import prefect_tasks
from amazon_electra.flows.runner.prefect_tasks import PrefectStageMaker
from amazon_electra.flows.runner.stage_runner import StageRunner
from amazon_electra.flows.runs import graph_run
from amazon_electra.flows.store.stage import Group, Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.tracking.mlflow_run import Tracking
from tests.flows.forms import fill_parameters
from tests.flows.toy_graph import be_patient_with_mlflow, job, run_toy
from tests.patience import eventually

pytestmark = pytest.mark.usefixtures("prefect_home")


def open_store(folder, mlflow_template):
    """A store in which no stage was made."""
    (folder / "mlflow").mkdir(parents=True)
    shutil.copy(mlflow_template, folder / "mlflow" / "mlflow.db")
    return folder


@pytest.fixture
def store(tmp_path, mlflow_template):
    return open_store(tmp_path / "store", mlflow_template)


def attempts(store, stage):
    """How often the job of a stage was started."""
    return sum(len(path.read_text()) for path in store.glob(f"toy-{stage}/*/attempts"))


def mlflow_runs(store):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{store}/mlflow/mlflow.db")
    experiment = client.get_experiment_by_name("domain-adaptation")
    return client, client.search_runs([experiment.experiment_id])


@pytest.fixture(scope="module")
def twice(tmp_path_factory, mlflow_template, prefect_home):
    """A store in which the same run went through its graph twice; what both gave, when the stages
    were finished before the second one, and how often the accelerator was taken.
    """
    store, held = open_store(tmp_path_factory.mktemp("twice") / "store", mlflow_template), []
    be_patient_with_mlflow(store)
    hold = prefect_tasks.hold_accelerator

    def count_and_hold():
        held.append("taken")
        return hold()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefect_tasks, "hold_accelerator", count_and_hold)
        patch.setattr(graph_run, "find_running_servers", lambda root: {"prefect": "http://"})
        first = run_toy(store, {})
        finished = read_finished(store)
        [report] = [path.parent for path in store.glob("toy-report/*/manifest.json")]
        (report / "report.md").write_text("a report")
        return store, [first, run_toy(store, {})], finished, held


def read_finished(store):
    return {m["fingerprint"]: m["finished"] for m in Store(store).list_manifests()}


def test_a_repeated_run_makes_nothing_and_mlflow_has_one_parent_a_run(twice):
    store, results, manifests, held = twice
    assert results[0] == results[1]
    assert read_finished(store) == manifests
    assert len(manifests) == 8
    assert len(held) == 2, "for the training and for the cells, not where all is complete"
    assert (attempts(store, "finetuning"), attempts(store, "report")) == (2, 1)
    [_] = store.glob("finished/*/*.json")

    client, runs = mlflow_runs(store)
    nested = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    parents = [run for run in runs if run not in nested]
    assert len(parents) == 2
    assert sorted(run.info.run_name for run in nested) == ["cell 0", "cell 1", "pretraining"]
    assert {run.info.status for run in runs} == {"FINISHED"}
    files = {r.info.run_id: [f.path for f in client.list_artifacts(r.info.run_id)] for r in runs}
    assert sorted(files[run.info.run_id] for run in parents) == [[], ["report.md"]]
    [pretraining] = [run for run in nested if run.info.run_name == "pretraining"]
    history = client.get_metric_history(pretraining.info.run_id, "loss")
    assert [(m.step, m.value) for m in history] == [(1, 1.0), (2, 0.5), (3, pytest.approx(1 / 3))]
    assert pretraining.data.tags["amazon_electra.fingerprint"] in manifests
    [cell] = [run for run in nested if run.info.run_name == "cell 0"]
    told = [cell.data.metrics[f"test.accuracy{part}"] for part in ("", ".low", ".high")]
    assert told == [0.5, 0.4, 0.6]


def test_prefect_shows_what_was_made(twice):
    from prefect.client.orchestration import get_client

    store, *_ = twice
    with get_client(sync_client=True) as client:
        newest = client.read_flow_runs(sort=FlowRunSort.START_TIME_DESC, limit=200)
        runs = [run for run in newest if run.parameters.get("store") == str(store)]
        ids = [run.id for run in runs]
        of_runs = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=ids))
        names = {artifact.key for artifact in client.read_artifacts(artifact_filter=of_runs)}
        both = FlowRunFilter(id={"any_": ids})

        def made():
            return client.read_task_runs(flow_run_filter=both)

        eventually(lambda: len(made()) == 2 * 7)  # Prefect writes them down a moment later
    assert {"corpus-progress", "pretraining-progress", "plan"} <= names
    assert all(run.name.startswith("sample-100 · domain-adaptation · 2") for run in runs)


@pytest.mark.parametrize(
    ("how", "starts", "raised"),
    [("once", 2, None), ("mistake", 1, UserError), ("network", 3, TransientError)],
)
def test_only_what_may_pass_is_tried_again(store, monkeypatch, how, starts, raised):
    monkeypatch.setattr("amazon_electra.flows.runner.prefect_tasks.RETRY_DELAYS", [0.1, 0.1])
    with pytest.raises(raised) if raised else nullcontext():
        run_toy(store, {"pretraining": {"how": how}})
    assert attempts(store, "pretraining") == starts


def test_a_failed_run_continues_at_the_stage_that_failed(store):
    with pytest.raises(JobFailed, match=r"ZeroDivisionError.*log: .*log\.txt"):
        run_toy(store, {"pretraining": {"how": "bug"}})
    _, runs = mlflow_runs(store)
    assert {run.info.status for run in runs} == {"FAILED"}
    run_toy(store, {})
    started = [attempts(store, stage) for stage in ("corpus", "pretraining", "report")]
    assert started == [1, 2, 1]
    _, runs = mlflow_runs(store)
    assert sorted(run.info.status for run in runs) == ["FAILED"] * 2 + ["FINISHED"] * 4


def test_a_group_that_may_fail_tells_the_graph_what_failed(tmp_path, call_in_flow):
    told = []
    good, bad = (job("small", {}, {"how": how}, title=how) for how in ("well", "bug"))
    after = job("small", {"source": bad}, {}, title="after")

    def graph():
        told.append((yield Group([[after], [bad], [good]], 2, may_fail=True)))
        yield Group.of(job("report", {"good": good}, {}))

    store = Store(tmp_path / "store")
    maker = PrefectStageMaker(StageRunner(store, [], Tracking(f"sqlite:///{tmp_path}/m.db")))
    last = call_in_flow(lambda: maker.make_graph(graph()))
    assert store.manifest(last)
    assert [*told[0]] == [bad.path]
    assert not store.folder(after).exists(), "what it is made of failed"
    assert str(store.folder(bad)) in str(maker.failed["bug"]), "the log is named"


def test_a_group_begins_in_its_order_with_as_many_at_once_as_it_says(tmp_path, call_in_flow):
    """The first ends when the last has."""
    gate, began, done = tmp_path / "gate", [], []
    ways = {"a": {"gate": gate}}
    stages = [job("small", {}, ways.get(title, {}), title=title) for title in "abc"]

    class Listener:
        def on_complete(self, stage, manifest, found):
            done.append(stage.label)
            if stage.label == "c":
                gate.touch()

    class Maker(PrefectStageMaker):
        def _create_task(self, chain):
            began.append((chain[0].label, len(done)))
            return super()._create_task(chain)

    tracking = Tracking(f"sqlite:///{tmp_path}/m.db")
    runner = StageRunner(Store(tmp_path / "store"), [Listener()], tracking)
    call_in_flow(lambda: Maker(runner).make_group(Group([[stage] for stage in stages], 2)))
    assert began == [("a", 0), ("b", 0), ("c", 1)]
    assert done == ["b", "c", "a"]


def test_what_was_begun_before_the_server_answered_is_followed(tmp_path, call_in_flow):
    store = Store(tmp_path / "store")
    corpus, shown = job("corpus", {}, {}), []
    runner = StageRunner(store, [], Tracking(f"sqlite:///{tmp_path}/m.db"))
    runner.begin(corpus)
    eventually(lambda: store.manifest(corpus))

    class Listener:
        def on_complete(self, stage, manifest, found):
            shown.append((stage.name, found))

        def on_line(self, text):
            shown.append((text, "waits"))  # for another run, which there is not

    def graph():
        yield Group.of(corpus)
        yield Group.of(job("report", {"corpus": corpus}, {}))

    runner.listeners = [Listener()]
    call_in_flow(lambda: PrefectStageMaker(runner).make_graph(graph()))
    assert shown == [("toy-corpus", False), ("toy-report", False)]


def test_the_model_is_the_best_of_the_arms_that_did_not_fail(tmp_path):
    """The failed one is a line of the report."""
    form = fill_parameters(["recipe=sample"], dump={"paths": ["sample:50"]}, store=str(tmp_path))
    plan = plan_run(form, Store(form.store))
    groups, made = domain_adaptation.graph(plan), list[Stage]()
    group = next(groups)
    with suppress(StopIteration):
        while True:
            made += group.stages
            failing = [one.path for one in group.stages if one.label.startswith("TF-IDF · stars")]
            group = groups.send({failing[0]: JobFailed("boom")} if failing else {})
    arms = {
        stage.config.task: {*stage.config.arms.values()} for stage in made if stage.name == "model"
    }
    failed = {"TF-IDF", "pre-trained, and TF-IDF together"}  # which is made of it
    assert arms["polarity"] - arms["stars"] == failed
    assert made[-1].name == "report"
    assert not any("TF-IDF · stars" in name for name in made[-1].inputs)
