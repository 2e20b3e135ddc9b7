"""What a worker of a pool is told, and what it refuses, in one line."""

import pytest

from beam_jobs.job.errors import UserError
from flows.run_stage import check_sources
from flows.runner.pools.order import FOLDER, Order, read_order, remove_order, write_order
from flows.runner.store import Stage, Store
from flows.stages import dump
from flows.stages.external import build_external_stage
from tests.flows.pools.test_stage_json import plan


@pytest.fixture
def order(tmp_path):
    [corpus, words, *_] = plan(tmp_path / "store")
    return Order([[corpus], [words]], 2, "cpu", True, {"tag": "x"}, "http://127.0.0.1:1", "id")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def change(store, name, old, new):
    file = store.root / FOLDER / name / "order.json"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_an_order_is_read_as_it_was_written_and_leaves_nothing(store, order):
    write_order(store, "one", order)
    told = read_order(store, "one")
    assert [s.fingerprint for s in told.stages] == [s.fingerprint for s in order.stages]
    assert [len(chain) for chain in told.chains] == [1, 1]
    assert (told.at_once, told.device, told.stays, told.tags, told.mlflow, told.mlflow_run) == (
        (2, "cpu", True, {"tag": "x"}, "http://127.0.0.1:1", "id")
    )
    assert told.title == "corpus and 1 beside"
    remove_order(store, "one")
    assert list((store.root / FOLDER).iterdir()) == []


def test_a_host_with_another_store_says_so(tmp_path, store, order):
    write_order(store, "one", order)
    other = Store(tmp_path / "other")
    with pytest.raises(UserError, match=r"other: this host does not see what the run wrote there"):
        read_order(other, "one")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"version": 7', '"version": 8', "corpus is [0-9a-f]{16} here and [0-9a-f]{16} there"),
        ('"near_duplicates": 0.0', '"near_copies": 0.0', "near_copies"),
        ("corpus:format_arguments", "corpus:format_later", "no flows.stages.corpus:format_later"),
    ],
)
def test_a_host_with_other_code_says_so_before_it_makes_anything(store, order, old, new, told):
    write_order(store, "one", order)
    change(store, "one", old, new)
    with pytest.raises(UserError, match=rf"^this worker's code \(.*\) is not the run's .*{told}"):
        read_order(store, "one")


def test_a_sample_is_written_again_on_the_other_host_and_other_files_are_told(tmp_path, store):
    [corpus, *_] = plan(store.root)
    reviews = corpus.inputs["dump"]
    [path] = (store.root / "samples").iterdir()
    whole = path.read_bytes()
    path.unlink()
    dump.check_copies(reviews, store)
    assert path.read_bytes() == whole
    path.write_bytes(whole[:-1])
    with pytest.raises(UserError, match="is another file on this host"):
        dump.check_copies(reviews, store)
    file = tmp_path / "reviews.json"
    file.write_text('{"reviewText": "good", "overall": 5}')
    reviews = dump.build_dump_stage(dump.Dump(paths=[str(file)]), store)
    file.unlink()
    with pytest.raises(UserError, match=r"reviews\.json is not on this host; put it into s3://"):
        dump.check_copies(reviews, store)


def test_files_that_texts_are_withheld_for_are_the_same_on_the_other_host(tmp_path, store):
    file = tmp_path / "test.txt"
    file.write_text("good")
    [corpus, *_] = plan(store.root, f"corpus.withhold={file}")
    assert str(file) in corpus.arguments(store, tmp_path)
    file.write_text("other")
    with pytest.raises(UserError, match=r"^corpus\.withhold: .*test\.txt is another file on this"):
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
    with pytest.raises(UserError, match=r"task is something else on this host; copy it again$"):
        check_sources(cell, store)
    (folder / "train.tsv").unlink()
    folder.rmdir()
    with pytest.raises(UserError, match=r"task is not on this host; put it into a folder that all"):
        check_sources(cell, store)
