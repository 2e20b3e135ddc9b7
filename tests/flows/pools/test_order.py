"""What a worker of a pool is told, and what it refuses, in one line."""

import json

import pytest

from beam_jobs.core.errors import UserError
from flows.configuration.form import fill_parameters
from flows.domain_adaptation import graph
from flows.run_stage import check_sources
from flows.runner.pools.order import Order, read_order, write_order
from flows.runner.stage_runner import Plan
from flows.stages import dump
from flows.stages.origin import build_external_stage
from flows.store.store import Stage, Store

HERE = {"dump", "origin", "report"}
"""Stages that no other host makes."""


def plan(store, *settings):
    """The stages of a run that other hosts make; the dump is complete."""
    parameters = fill_parameters(settings, dump={"paths": ["sample:50"]}, store=str(store))
    found = Plan(Store(store))
    graph(parameters, found)
    for stage, _ in found.stages:
        if stage.name == "dump":
            found.store.publish(stage, stage.result)
    return [stage for stage, _ in found.stages if stage.name not in HERE]


def send(chain, here):
    """The order as Prefect passes it on."""
    return json.loads(write_order(chain, here).model_dump_json(exclude_defaults=True))


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def test_every_stage_keeps_its_fingerprint_and_its_command_line(store):
    stages = plan(store.root, "pretraining.steps=5")
    for one in stages:
        told = send([one], store)
        [other] = read_order(Order(**told), store)
        assert (other.fingerprint, other.module) == (one.fingerprint, one.module)
        assert len(json.dumps(told)) < 50_000, "Prefect takes half a megabyte"
        looked = ("label", "tracked", "environment", "scratch", "written_last", "labels")
        assert [getattr(other, name) for name in looked] == [getattr(one, name) for name in looked]
        if one.name != "finetuning":  # it looks into the folder of shards, which is not made here
            words = one.arguments(store, store.folder(one))
            assert other.arguments(store, store.folder(other)) == words
    chain = [stage for stage in stages if stage.label.startswith("pre-trained · stars · seed 0")]
    crossed = read_order(Order(**send(chain, store)), store)
    assert [one.fingerprint for one in crossed] == [one.fingerprint for one in chain]


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ("pretraining.start_from=E pretraining.start_generator_from=E", "pre-training"),
        ("finetuning.arms=random finetuning.folds=2", "random · polarity · seed 0 · 2 folds"),
    ],
)
def test_a_published_start_and_a_cross_validation_cross_too(list_stages, encoder, settings, label):
    store, stages = list_stages(*settings.replace("=E", f"={encoder}").split())
    one = stages[label]
    [other] = read_order(Order(**send([one], store)), store)
    assert one.fingerprint == other.fingerprint
    folder = store.folder(one)
    assert other.arguments(store, folder) == one.arguments(store, folder)


def test_a_host_with_another_store_says_so(tmp_path, store):
    [corpus, *_] = plan(store.root)
    with pytest.raises(UserError, match=r"other: this host does not see dump/\w+, which the run"):
        read_order(Order(**send([corpus], store)), Store(tmp_path / "other"))


def change(told, old, new):
    text = json.dumps(told)
    assert old in text
    return Order(**json.loads(text.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"version": VERSION', '"version": 0', "corpus is corpus/[0-9a-f]{16} here and corpus/"),
        ('"function": "corpus"', '"function": "os.system"', "no function os.system"),
        ('"corpus/', '"../corpus/', "no folder of a stage"),
        ('"version": "', '"version": "1', "the run is of another version"),
    ],
)
def test_a_host_with_other_code_says_so_before_it_makes_anything(store, old, new, why):
    [corpus, *_] = plan(store.root, "corpus.title=false")
    told = send([corpus], store)
    told["stages"][corpus.path]["call"]["values"]["chosen"]["near_duplicates"] = 0.0
    order = change(told, old.replace("VERSION", str(corpus.version)), new)
    with pytest.raises(UserError, match=rf"^this worker's code \(.*\) is not the run's .*{why}"):
        read_order(order, store)


@pytest.mark.parametrize(
    ("field", "value"),
    [("environment", {"LD_PRELOAD": "x.so"}), ("scratch", [".."]), ("module", "os")],
)
def test_an_order_holds_nothing_else(store, field, value):
    [corpus, *_] = plan(store.root)
    told = send([corpus], store)
    told["stages"][corpus.path][field] = value
    with pytest.raises(ValueError, match=field):
        Order(**told)


def test_a_function_that_is_not_in_the_table_is_sent_to_nobody(store):
    with pytest.raises(AttributeError):
        write_order([Stage("corpus", 1, {}, arguments=lambda store, folder: [])], store)


def test_a_sample_is_written_again_on_the_other_host_and_other_files_are_told(tmp_path, store):
    [corpus, *_] = plan(store.root)
    reviews = corpus.inputs["dump"]
    [path] = (store.root / "samples").iterdir()
    whole = path.read_bytes()
    path.unlink()
    other = Store(tmp_path / "other")
    [there] = dump.locate_dump(reviews, other)
    assert there == str(other.root / "samples" / path.name)
    path.write_bytes(whole[:-1])
    with pytest.raises(UserError, match="differs on this host"):
        dump.locate_dump(reviews, store)
    file = tmp_path / "reviews.json"
    file.write_text('{"reviewText": "good", "overall": 5}')
    reviews = dump.build_dump_stage(dump.Dump(paths=[str(file)]), store)
    assert dump.locate_dump(reviews, store) == [str(file)]
    file.unlink()
    with pytest.raises(UserError, match=r"reviews\.json is not on this host; put it into s3://"):
        dump.locate_dump(reviews, store)


def test_files_that_texts_are_withheld_for_are_the_same_on_the_other_host(tmp_path, store):
    file = tmp_path / "test.txt"
    file.write_text("good")
    [corpus, *_] = plan(store.root, f"corpus.withhold={file}")
    assert str(file) in corpus.arguments(store, tmp_path)
    file.write_text("other")
    with pytest.raises(UserError, match=r"^corpus\.withhold: .*test\.txt differs on this"):
        corpus.arguments(store, tmp_path)
    file.unlink()
    with pytest.raises(UserError, match=r"^corpus\.withhold: .*test\.txt is not on this host"):
        corpus.arguments(store, tmp_path)


def test_what_a_study_takes_from_elsewhere_is_the_same_on_the_other_host(tmp_path, store):
    folder = tmp_path / "task"
    folder.mkdir()
    (folder / "train.tsv").write_text("sentence\tlabel")
    task = build_external_stage(str(folder), store)
    cell = Stage("finetuning", 1, {}, {"data": task})
    check_sources(cell, store)
    (folder / "train.tsv").write_text("sentence\tother")
    with pytest.raises(UserError, match=r"task differs on this host; copy it again$"):
        check_sources(cell, store)
    (folder / "train.tsv").unlink()
    folder.rmdir()
    with pytest.raises(UserError, match=r"task is not on this host; put it into a folder that all"):
        check_sources(cell, store)


@pytest.mark.usefixtures("prefect_home")
def test_a_worker_finds_what_is_complete_and_refuses_what_no_run_asked_for(store):
    from flows.run_stage import run_stage

    [corpus, *_] = plan(store.root)
    store.publish(corpus, {"read": 50})
    assert run_stage(**send([corpus], store)) == [corpus.path]
    with pytest.raises(UserError, match="run-stage is started by runs"):
        run_stage(store=str(store.root))
