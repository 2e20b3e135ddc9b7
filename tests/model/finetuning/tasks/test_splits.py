"""Which file is which split, and no input, passage or product on two sides."""

import itertools
from collections import Counter
from functools import partial

import pytest

from amazon_electra.model.finetuning.examples import SPLITS, Sampling, load_examples
from amazon_electra.model.finetuning.splits import (
    group_by_split,
    hash_input,
    list_data_files,
    plan_splits,
)
from amazon_electra.model.finetuning.tasks import find_task
from tests.model.finetuning.tasks.test_formats import splits
from tests.refusals import refuses

N = 60


def write(folder, names, text="{name} words number {i}"):
    """Write files of N reviews whose texts begin with the file's name."""
    folder.mkdir(exist_ok=True)
    for name in names:
        lines = (f"__label__{1 + i % 2} {text.format(name=name, i=i)}\n" for i in range(N))
        (folder / name).write_text("".join(lines))
    return folder


@pytest.mark.parametrize(
    ("there", "is_labelled", "expected"),
    [
        (("train.tsv", "dev.tsv", "test.tsv"), True, ("train.tsv", "dev.tsv", "test.tsv")),
        (("train.tsv", "dev.tsv", "test.tsv"), False, ("train.tsv", "train.tsv", "dev.tsv")),
        (("train-v2.0.json", "dev-v2.0.json"), True, ("train-v2.0.json",) * 2 + ("dev-v2.0.json",)),
        (("eng.train", "eng.testa", "eng.testb"), True, ("eng.train", "eng.testa", "eng.testb")),
        (("train.ft.txt", "test.ft.txt"), True, ("train.ft.txt",) * 2 + ("test.ft.txt",)),
        (("val-qar.jsonl", "README.md", "load.py", ".x"), True, ("val-qar.jsonl",) * 3),
    ],
)
def test_published_splits_stay_and_others_are_cut(tmp_path, there, is_labelled, expected):
    write(tmp_path, there)
    planned = plan_splits(tmp_path, labelled_test=is_labelled)
    assert tuple(planned[split].files[0].name for split in SPLITS) == expected
    assert all(len(planned[split].files) == 1 for split in SPLITS)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_splits_are_disjoint_whichever_files_are_there(tmp_path, count):
    for there in itertools.combinations(("train.txt", "dev.txt", "test.txt"), count):
        read = splits("amazon-sentiment", write(tmp_path / "-".join(there), there))
        for a, b in itertools.combinations(SPLITS, 2):
            assert not {*map(hash_input, read[a])} & {*map(hash_input, read[b])}, there
            assert not {e.id for e in read[a]} & {e.id for e in read[b]}, there


def test_inputs_of_later_splits_are_left_out(tmp_path):
    """Every file holds the same examples: test keeps them all."""
    write(tmp_path, ("train.txt", "dev.txt", "test.txt"), "words number {i}")
    left_out = Counter()
    load = partial(load_examples, find_task("amazon-sentiment"), tmp_path)
    assert len(load("test", Sampling(), left_out)) == N
    assert not left_out
    with refuses("train split"):
        load("train", Sampling(), left_out)
    assert left_out == {"input also in a later split": N}


def test_equal_inputs_differ_in_case_and_spaces_alone(tmp_path):
    files = {
        "train.txt": ((2, "a  Lamp"), (1, "a kettle"), (2, "a knife")),
        "dev.txt": ((1, "a KETTLE"), (2, "a spoon")),
        "test.txt": ((2, "A lamp"), (1, "A SPOON"), (1, "b")),
    }
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(f"__label__{k} {text}\n" for k, text in lines))
    left_out = Counter()
    read = find_task("amazon-sentiment").read
    kept = {split: read(tmp_path, split, Sampling(), left_out) for split in SPLITS}
    assert [[e.text for e in kept[split]] for split in SPLITS[:2]] == [["a knife"], ["a KETTLE"]]
    assert left_out == {"input also in a later split": 3}


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("Train.csv", "train"), ("devices_train.csv", "train"), ("devices.csv", None),
        ("contest-Validation.jsonl", "dev"), ("MyTestSet.tsv", "test"),
        ("dev_mismatched.tsv", "dev"), ("readme.txt", None),
    ],
)  # fmt: skip
def test_a_word_of_the_name_tells_the_split(tmp_path, name, split):
    (tmp_path / name).write_text("x")
    found = group_by_split(list_data_files(tmp_path))
    assert [s for s in SPLITS if found[s]] == ([split] if split else [])


@pytest.mark.parametrize(
    ("name", "is_labelled"), [("train_test.csv", True), ("test.csv", False), ("README.md", True)]
)
def test_files_without_splits_are_refused(tmp_path, name, is_labelled):
    (tmp_path / name).write_text("x")
    named = tmp_path if name == "README.md" else name
    with refuses(named):
        plan_splits(tmp_path, labelled_test=is_labelled)
