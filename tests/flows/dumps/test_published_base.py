"""A dump that is added to an adapted published encoder: at which rates that is gone on with, and
what protects it.
"""

from dataclasses import replace

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows import add_dump
from amazon_electra.flows.configuration.form import Addition
from amazon_electra.flows.configuration.form_tools import fill_form
from amazon_electra.flows.runner.stage_runner import Plan
from amazon_electra.flows.stages.cells import build_cell
from amazon_electra.flows.stages.finetuning import Finetuning, Start
from amazon_electra.flows.stages.report import build_report_stage
from tests.flows.calls import call_of
from tests.flows.made import RESULTS, publish, publish_corpus


@pytest.fixture
def add_dump_to(list_stages, encoder):
    """The base of an adapted published encoder, its corpus and origin, and the plan of a dump that
    is added to it; of a run without one where `begun` is none.
    """

    def of(*settings, base=(), begun=True):
        start = [f"pretraining.start_from={encoder}", "recipe=published"] if begun else []
        start += ["pretraining.steps=100"] if begun else []
        store, stages = list_stages(*start, *(f"pretraining.{setting}" for setting in base))
        for label, stage in stages.items():
            publish(store, stage)
            if label == "pre-training":
                break
        store.publish(stages["corpus"], {**RESULTS["corpus"], "stars": STARS})
        (store.folder(stages["pre-training"]) / "encoder").mkdir()
        fixed = ("increment.base=last", "increment.steps=5")
        form = fill_form(
            Addition, [*fixed, *settings], dump={"paths": ["sample:70"]}, store=str(store.root)
        )
        plan = Plan(store)
        add_dump.graph(add_dump.prepare_addition(form, plan), plan)
        return store, stages, [stage for stage, _ in plan.stages]

    return of


STARS = {f"{split}.{stars}": 7_000 for split in ("train", "dev", "test") for stars in (1, 5)}


def find_training(stages):
    [training] = [stage for stage in stages if stage.name == "pretraining"]
    return training


def test_a_dump_is_added_to_a_model_that_began_with_a_published_one(add_dump_to, tmp_path):
    arms = "finetuning.arms=pre-trained,base,origin"
    store, stages, planned = add_dump_to(arms)
    base, origin = stages["pre-training"], stages["origin mini-bert"]
    training = find_training(planned)
    assert training.inputs["base"].fingerprint == base.fingerprint
    call = call_of(training, store)
    assert call["start_from"] == store.folder(base) / "encoder"
    assert call["start_generator_from"] is None
    [report] = [stage for stage in planned if stage.name == "report"]
    cells = [stage for stage in planned if stage.name == "finetuning"]
    assert {cell.labels["arm"] for cell in cells} == {"adapted", "base", "mini-bert as published"}
    assert any(
        source.fingerprint == origin.fingerprint for c in cells for source in c.inputs.values()
    )
    assert "from mini-bert" in report.parameters["title"]


@pytest.mark.parametrize(
    ("base", "settings", "rates"),
    [
        (
            [
                "learning_rate=2e-3",
                "head_steps=0.4",
                "trunk_learning_rate=5e-5",
                "origin_average=0.1",
            ],
            [],
            {"learning_rate": "5e-05", "origin_average": "0.1"},
        ),
        (
            ["origin_average=0.1"],
            ["increment.trunk_learning_rate=1e-5", "increment.origin_average=0.2"],
            {"learning_rate": "5e-5", "trunk_learning_rate": "1e-5", "origin_average": "0.2"},
        ),
    ],
)
def test_an_adapted_encoder_is_gone_on_with_at_its_trunks_rate_and_probed(
    add_dump_to, tmp_path, base, settings, rates
):
    store, stages, planned = add_dump_to(*settings, base=base)
    training = find_training(planned)
    call = call_of(training, store)
    adapting = ("objective", "seed", "warmup")
    given = call["config"].settings
    assert {n: v for n, v in given.items() if n not in adapting} == rates
    assert given["warmup"] == "0.1"
    labelled = stages["corpus"]
    assert training.inputs["corpus"].fingerprint == labelled.fingerprint, "the first dump's"
    assert call["probe"] == store.folder(labelled)


def test_a_model_that_began_with_nothing_is_gone_on_with_as_before(add_dump_to, tmp_path):
    store, _, planned = add_dump_to(base=["learning_rate=2e-3"], begun=False)
    training = find_training(planned)
    assert set(training.inputs) == {"base", "dev_shards", "shards"}
    call = call_of(training, store)
    assert call["probe"] is None
    assert call["config"].settings == {"learning_rate": "2e-3", "warmup": "0.1", "seed": "0"}
    with pytest.raises(UserError, match=r"increment\.trunk_learning_rate"):
        add_dump_to("increment.trunk_learning_rate=1e-5", begun=False)


ADAPTATION = "adaptation of mini-bert"


@pytest.fixture
def contrastive(list_stages, encoder):
    """A base that was adapted by contrast, in a store: its stages by label; what an addition asks
    for, and the parameters and stages that this comes to.
    """

    class Contrastive:
        def __init__(self):
            chosen = ("learning_rate=3e-5", "seed=7", "objective=contrastive")
            settings = [f"pretraining.{one}" for one in (f"start_from={encoder}", *chosen)]
            self.store, self.stages = list_stages("recipe=published", *settings)
            for label, stage in self.stages.items():
                if stage.name in ("dump", "origin", "corpus", "contrastive-adaptation"):
                    publish(self.store, stage)
                if label == ADAPTATION:
                    (self.store.folder(stage) / "encoder").mkdir()
                    self.base = stage

        def ask(self, *settings, dump="sample:70"):
            fixed = ["increment.base=last", *settings]
            return fill_form(Addition, fixed, dump={"paths": [dump]}, store=str(self.store.root))

        def plan(self, *settings, **dump):
            plan = Plan(self.store)
            parameters = add_dump.prepare_addition(self.ask(*settings, **dump), plan)
            last = add_dump.graph(parameters, plan)
            return last, [stage for stage, _ in plan.stages]

    return Contrastive()


def find_adaptation(stages):
    [adaptation] = [stage for stage in stages if stage.name == "contrastive-adaptation"]
    return adaptation


def test_a_dump_is_added_to_a_contrastive_base_by_its_pairs(contrastive):
    store, base = contrastive.store, contrastive.base
    last, planned = contrastive.plan("finetuning.arms=pre-trained,base,origin")
    first = [stage.name for stage in planned][:3]
    assert first == ["dump", "corpus", "joined-corpus"]
    assert not {"vocabulary", "vocabulary-fit", "shards", "dev-shards"} & {s.name for s in planned}
    corpus, adaptation = planned[1], find_adaptation(planned)
    assert corpus.inputs["earlier"].fingerprint == contrastive.stages["corpus"].fingerprint
    assert {name: s.fingerprint for name, s in adaptation.inputs.items()} == {
        "corpus": corpus.fingerprint,
        "base": base.fingerprint,
    }
    call = call_of(adaptation, store)
    assert call["encoder"] == store.folder(base) / "encoder"
    assert call["corpora"] == [store.folder(corpus)]
    assert call["config"] == base.config
    cells = {s.labels["arm"]: s.inputs for s in planned if s.name == "finetuning"}
    assert set(cells) == {"adapted", "base", "mini-bert as published"}
    assert cells["adapted"]["encoder"] is adaptation
    assert cells["base"]["encoder"].fingerprint == base.fingerprint
    [joined] = {c["data"].fingerprint: c["data"] for c in cells.values()}.values()
    made_of = {name: stage.fingerprint for name, stage in joined.inputs.items()}
    first = contrastive.stages["corpus"].fingerprint
    assert made_of == {"earlier": first, "corpus": corpus.fingerprint}
    assert last.name == "report"
    assert last.inputs["encoder"] is adaptation


def test_the_form_changes_the_settings_of_a_contrastive_base(contrastive):
    asked = ("increment.epochs=2", "increment.temperature=0.1", "increment.seed=3")
    _, planned = contrastive.plan(*asked)
    told = {"epochs": 2, "temperature": 0.1, "seed": 3}
    assert find_adaptation(planned).config == contrastive.base.config.replace(**told)


@pytest.mark.parametrize("setting", ["steps=9", "replay_ratio=0.2", "dropout=0.1", "epochs=0"])
def test_what_contrast_does_not_take_is_refused_by_its_name(contrastive, setting):
    with pytest.raises(UserError) as refused:
        contrastive.plan(f"increment.{setting}")
    assert refused.value.field == f"increment.{setting.partition('=')[0]}"


@pytest.mark.parametrize("titles", [15, 16])
def test_too_few_titles_keep_the_encoder_and_add_their_labels(contrastive, titles):
    _, planned = contrastive.plan()
    publish_corpus(contrastive.store, planned[1], ["Broke at once"] * titles + ["Five Stars"] * 9)
    last, planned = contrastive.plan()
    joined = next(stage for stage in planned if stage.name == "joined-corpus")
    adaptations = [stage for stage in planned if stage.name == "contrastive-adaptation"]
    assert last.name == "report"
    assert (
        last.inputs["encoder"].fingerprint
        == (contrastive.base if titles == 15 else adaptations[0]).fingerprint
    )
    assert ("encoder" in joined.inputs) == (titles == 15) == (not adaptations)
    models = [stage for stage in planned if stage.name == "model"]
    assert all(stage.inputs["data"] is joined for stage in models)


def test_the_labels_of_a_dump_whose_text_was_not_trained_on_stay_with_the_chain(contrastive):
    store, base = contrastive.store, contrastive.base
    _, planned = contrastive.plan()
    publish_corpus(store, planned[1], ["Five Stars"] * 9)
    _, planned = contrastive.plan()
    dump, corpus, joined = planned[:3]
    for stage in (dump, joined):
        publish(store, stage)
    third = contrastive.ask(f"increment.base={base.fingerprint}", dump="sample:90")
    form = add_dump.choose_newest_base(third, store)
    assert form.increment.base == joined.fingerprint
    plan = Plan(store)
    add_dump.graph(add_dump.prepare_addition(form, plan), plan)
    stages = [stage for stage, _ in plan.stages]
    again = [stage for stage in stages if stage.name == "joined-corpus"]
    assert [one.fingerprint for one in again[:-1]] == [joined.fingerprint]
    assert again[-1].inputs["earlier"].fingerprint == joined.fingerprint
    assert stages[1].inputs["earlier"].fingerprint == corpus.fingerprint
    assert find_adaptation(stages).inputs["base"].fingerprint == base.fingerprint
    _, same = contrastive.plan()
    assert same[2].fingerprint == joined.fingerprint, "the same request again"


def test_dumps_that_are_added_to_a_contrastive_base_make_one_chain(contrastive):
    """As the watcher asks for it."""
    store, base = contrastive.store, contrastive.base
    _, planned = contrastive.plan()
    second = find_adaptation(planned)
    for stage in (planned[0], second):
        publish(store, stage)
    publish_corpus(store, planned[1], ["Broke at once"] * 16)
    third = contrastive.ask(f"increment.base={base.fingerprint}", dump="sample:90")
    form = add_dump.choose_newest_base(third, store)
    assert form.increment.base == second.fingerprint
    plan = Plan(store)
    add_dump.graph(add_dump.prepare_addition(form, plan), plan)
    corpus, adaptation = plan.stages[1][0], find_adaptation([stage for stage, _ in plan.stages])
    assert corpus.inputs["earlier"].fingerprint == planned[1].fingerprint
    assert len(corpus.reads) == 2
    assert adaptation.inputs["base"].fingerprint == second.fingerprint
    _, again = contrastive.plan()
    assert find_adaptation(again).fingerprint == second.fingerprint, "the same request again"


def test_a_dump_is_added_to_a_run_whose_encoder_is_as_published(contrastive):
    """Its report stands for it; its encoder stays as published."""
    store, corpus = contrastive.store, contrastive.stages["corpus"]
    origin = contrastive.stages["origin mini-bert"]
    cell = build_cell(Finetuning(Start(arm="tfidf"), "polarity", 0, corpus, {}), "TF-IDF")
    about = "run", "published", contrastive.stages["dump"], [origin], origin, [cell]
    report = build_report_stage(*about)
    for stage in (*cell.chain, replace(report, describe=None)):
        publish(store, stage)
    last, planned = contrastive.plan(f"increment.base={report.fingerprint}")
    assert [stage.name for stage in planned][:3] == ["dump", "corpus", "joined-corpus"]
    joined = planned[2]
    assert joined.inputs["encoder"].fingerprint == origin.fingerprint
    assert joined.inputs["earlier"].fingerprint == corpus.fingerprint
    assert last.inputs["encoder"].fingerprint == origin.fingerprint
    encoders = {s.inputs["encoder"].fingerprint for s in planned if "encoder" in s.inputs}
    assert encoders == {origin.fingerprint}
    publish_corpus(store, planned[1], ["Broke at once"] * 99)
    for stage in (planned[0], joined):
        publish(store, stage)
    third = contrastive.ask(f"increment.base={report.fingerprint}", dump="sample:90")
    assert add_dump.choose_newest_base(third, store).increment.base == joined.fingerprint
    again = contrastive.ask(f"increment.base={joined.fingerprint}")
    assert add_dump.find_base(again, store).increment.base == report.fingerprint
