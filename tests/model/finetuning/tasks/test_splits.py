"""Which file is which split, for every subset of published files; no input, passage or product on
two sides.
"""

import itertools
import json
from collections import Counter

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.model.finetuning.examples import SPLITS, Sampling, load_examples
from amazon_electra.model.finetuning.splits import group_by_split, hash_input, list_data_files
from amazon_electra.model.finetuning.tasks import find_task
from tests.model.finetuning.tasks.test_formats import splits
from tests.refusals import names

FILES = {
    "amazon-sentiment": ("train.ft.txt", "test.ft.txt"),
    "mrpc": ("train.tsv", "dev.tsv", "test.tsv"),
    "squad1": ("train-v1.1.json", "dev-v1.1.json"),
    "squad2": ("train-v2.0.json", "dev-v2.0.json"),
    "amazonqa": ("train-qar.jsonl", "val-qar.jsonl", "test-qar.jsonl"),
    "amazonqa-answerable": ("train-qar.jsonl", "val-qar.jsonl", "test-qar.jsonl"),
    "conll2003": ("eng.train", "eng.testa", "eng.testb"),
    "swag": ("train.csv", "val.csv"),
}
"""Each task's files as they are published."""
N = 60


def content(task, name, of_split=None):
    """N examples whose text names their file; the form is the task's."""
    texts = list(enumerate(f"{of_split or name} words number {i}" for i in range(N)))
    if task == "amazon-sentiment":
        return "\n".join(f"__label__{1 + i % 2} {text}" for i, text in texts)
    if task == "mrpc":
        header = "Quality\t#1 String\t#2 String"
        return "\n".join([header, *(f"{i % 2}\t{text}\tb" for i, text in texts)])
    if task.startswith("squad"):
        paragraphs = []
        for _, text in texts:
            answers = [{"text": "words", "answer_start": text.index("words")}]
            qas = [{"id": text, "question": "what?", "answers": answers}]
            paragraphs.append({"context": text, "qas": qas})
        return json.dumps({"data": [{"paragraphs": paragraphs}]})
    if task.startswith("amazonqa"):
        rows = []
        for i, text in texts:
            row = {"questionText": f"what {i}?", "review_snippets": [text], "asin": f"B{i // 2}"}
            row |= {"answers": [{"answerText": "words"}], "qid": text, "is_answerable": i % 2}
            rows.append(json.dumps(row))
        return "\n".join(rows)
    if task == "conll2003":
        return "\n\n".join("\n".join(f"{word} O" for word in text.split()) for _, text in texts)
    header = "sent1,sent2,ending0,ending1,ending2,ending3,label"
    return "\n".join([header, *(f"{text},a,b,c,d,e,{i % 4}" for i, text in texts)])


def find_splits(data):
    return group_by_split(list_data_files(data))


def shown(examples):
    return {hash_input(example) for example in examples}


@pytest.mark.parametrize("task", FILES)
def test_published_names_tell_their_splits(tmp_path, task):
    for name in FILES[task]:
        (tmp_path / name).write_text(content(task, name))
    of_file = {
        split: {source(e) for e in examples if not e.is_swapped}
        for split, examples in splits(task, tmp_path).items()
    }
    if task == "mrpc":
        assert of_file == {"train": {"train.tsv"}, "dev": {"train.tsv"}, "test": {"dev.tsv"}}
    elif len(FILES[task]) == 2:
        train, tested = FILES[task]
        assert of_file == {"train": {train}, "dev": {train}, "test": {tested}}
    else:
        assert of_file == {split: {name} for split, name in zip(SPLITS, FILES[task], strict=True)}


def source(example):
    """The file, which the passage or the text begins with."""
    return (example.pair if example.answers or "?" in example.text else example.text).split()[0]


@pytest.mark.parametrize("task", FILES)
def test_splits_are_disjoint_whichever_files_are_there(tmp_path, task):
    for k in range(1, len(FILES[task]) + 1):
        for there in itertools.combinations(FILES[task], k):
            if there == ("test.tsv",):
                continue
            data = tmp_path / "-".join(there)
            data.mkdir()
            for name in there:
                (data / name).write_text(content(task, name))
            read = splits(task, data)
            for a, b in itertools.combinations(SPLITS, 2):
                assert not shown(read[a]) & shown(read[b]), there
                assert not {e.id for e in read[a]} & {e.id for e in read[b]}, there


@pytest.mark.parametrize("task", ["amazonqa", "amazonqa-answerable"])
def test_products_stay_on_one_side_of_a_cut(tmp_path, task):
    (tmp_path / "train-qar.jsonl").write_text(content(task, "train"))
    read = splits(task, tmp_path)
    asins = [{int(e.text.split()[1][:-1]) // 2 for e in read[s]} for s in SPLITS]
    assert sum(map(len, asins)) == len(set.union(*asins)) == N // 2


@pytest.mark.parametrize("task", FILES)
def test_inputs_of_later_splits_are_left_out(tmp_path, task):
    """Every file holds the same examples: test keeps them all."""
    listed = [name for name in FILES[task] if (task, name) != ("mrpc", "test.tsv")]
    for name in listed:
        (tmp_path / name).write_text(content(task, name, of_split="same"))
    left_out = Counter()
    assert (
        len(load_examples(find_task(task, tmp_path), tmp_path, "test", Sampling(), left_out)) == N
    )
    assert not left_out
    with pytest.raises(UserError, check=names("train split")):
        load_examples(find_task(task, tmp_path), tmp_path, "train", Sampling(), left_out)
    assert 0.7 * N < left_out["input also in a later split"] <= N


def test_equal_inputs_differ_in_case_and_spaces_alone(tmp_path):
    files = {
        "train.txt": ((2, "a  Lamp"), (1, "a kettle"), (2, "a knife")),
        "dev.txt": ((1, "a KETTLE"), (2, "a spoon")),
        "test.txt": ((2, "A lamp"), (1, "A SPOON"), (1, "b")),
    }
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(f"__label__{k} {text}\n" for k, text in lines))
    task = find_task("amazon-sentiment")
    left_out = Counter()
    with pytest.raises(UserError, check=names("amazon-sentiment")):
        load_examples(task, tmp_path, "train", Sampling(), left_out)
    assert left_out == {"input also in a later split": 2}
    assert [e.text for e in load_examples(task, tmp_path, "dev", Sampling(), left_out)] == [
        "a KETTLE"
    ]
    assert left_out == {"input also in a later split": 3}


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("Train.csv", "train"),
        ("devices_train.csv", "train"),
        ("devices.csv", None),
        ("contest-Validation.jsonl", "dev"),
        ("MyTestSet.tsv", "test"),
        ("eng.testa", "dev"),
        ("eng.testb", "test"),
    ],
)
def test_a_word_of_the_name_tells_the_split(tmp_path, name, split):
    (tmp_path / name).write_text("x")
    found = find_splits(tmp_path)
    assert [s for s in SPLITS if found[s]] == ([split] if split else [])


def test_a_name_of_two_splits_is_refused(tmp_path):
    (tmp_path / "train_test.csv").write_text("x")
    with pytest.raises(UserError, check=names("train_test.csv: ")):
        find_splits(tmp_path)


def test_notes_beside_the_data_are_not_data(tmp_path):
    for name in ("README.md", "readme.txt", "LICENSE", "load.py", ".hidden", "train.csv"):
        (tmp_path / name).write_text("x")
    assert find_splits(tmp_path) == {"train": (tmp_path / "train.csv",), "dev": (), "test": ()}


def test_a_folder_of_both_squads(tmp_path):
    for version in ("v1.1", "v2.0"):
        (tmp_path / f"dev-{version}.json").write_text(content("squad1", version))
    for task, version in (("squad1", "v1.1"), ("squad2", "v2.0")):
        assert {e.pair.split()[0] for part in splits(task, tmp_path).values() for e in part} == {
            version
        }


def test_only_an_unlabelled_test_file_is_not_enough(tmp_path):
    (tmp_path / "test.csv").write_text("x")
    with pytest.raises(UserError, check=names("test.csv")):
        splits("swag", tmp_path)
