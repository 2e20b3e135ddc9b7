"""Bad data ends in one line naming file, line or field; short lines are left out and counted."""

import bz2
import gzip
import json
from collections import Counter

import pytest

from amazon_electra.model.finetuning.examples import Sampling, load_examples
from amazon_electra.model.finetuning.splits import check_data
from amazon_electra.model.finetuning.tasks import find_task
from tests.model.finetuning.tasks.test_formats import splits
from tests.refusals import refuses

QUESTIONS = "amazonqa"
NUMBERS = "sentence1\tsentence2\tscore\n"


def squad(**qa):
    qas = [{"id": "1", "question": "q"} | qa]
    return json.dumps({"data": [{"paragraphs": [{"context": "a b", "qas": qas}]}]})


def question(**changed):
    row = {"questionText": "q", "review_snippets": ["a b"], "answers": [{"answerText": "a"}]}
    return json.dumps(row | {"asin": "A", "qid": 1} | changed)


LINES = question().encode() * 5000


@pytest.mark.parametrize(
    ("task", "name", "content", "words"),
    [
        (QUESTIONS, "a.json", f"[{question()}]", ", line 1: "),
        (QUESTIONS, "a.jsonl", f"{question()}\n5\n", ", line 2: "),
        (QUESTIONS, "a.jsonl", "{\n", ", line 1: "),
        (QUESTIONS, "a.jsonl.gz", gzip.compress(LINES)[:60], ": "),
        (QUESTIONS, "a.jsonl.bz2", bz2.compress(LINES)[:60], ": "),
        ("sts-b", "a.tsv", f"{NUMBERS}a\tb\n", "sts-b"),
        ("amazon-sentiment", "a.txt", "__label__3 what\n", ", line 1: label '__label__3'"),
        ("sts-b", "a.tsv", f"{NUMBERS}a\tb\tnan\n", ", line 2: label 'nan'"),
        ("squad2", "a.json", squad(), "'answers'"),
        ("squad2", "a.json", '{"data": {"a": 1}}', ": "),
        ("squad1", "a.json", squad(answers=[]), ": question 1"),
        ("squad2", "a.json", "[1]", ": "),
        ("amazonqa", "a.jsonl", question(review_snippets="a b"), ", line 1: review_snippets"),
        ("amazonqa", "a.jsonl", '{"questionText": "q"}', "'review_snippets'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path, task, name, content, words):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with refuses(name, words):
        splits(find_task(task, path).name, path)


def test_what_a_task_lacks_is_told_early(tmp_path):
    (tmp_path / "train.ft.txt").write_text("")
    with refuses("train split"):
        check_data(find_task("amazon-sentiment"), tmp_path)


def test_one_class_says_how_to_take_more(tmp_path):
    (tmp_path / "a.txt").write_text("__label__1 fine\n" * 3 + "__label__2 awful\n")
    with refuses("n_train"):
        load_examples(find_task("amazon-sentiment"), tmp_path / "a.txt", "train", Sampling(1))


def test_short_lines_are_left_out_and_counted(tmp_path):
    """Of published files that have some: QQP's."""
    good = "".join(f"{i}\twhat {i}\twhy\t{i % 2}\n" for i in range(60))
    questions = "id\tquestion1\tquestion2\tis_duplicate\n" + good + "77\twhat broken\n"
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text(questions)
    left_out = Counter()
    read = find_task("qqp").read(tmp_path, "test", Sampling(), left_out)
    assert left_out == {"line too short": 1}
    assert len(read) == 60
