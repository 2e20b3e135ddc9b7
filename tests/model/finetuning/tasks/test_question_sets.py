"""AmazonQA: where the answers are in their passages."""

import json
from math import exp

import pytest

from amazon_electra.model.finetuning.tasks import amazonqa
from tests.model.finetuning.tasks.test_formats import splits


def write_amazonqa(path, n=40):
    row = {"questionText": "how long does the battery last?", "questionType": "descriptive"}
    with path.open("w") as file:
        for i in range(n):
            said = f"the battery lasts about {i} hours on one charge ."
            row |= {"review_snippets": ["I like it .", said], "qid": i, "asin": f"B{i // 2}"}
            row |= {"answers": [{"answerText": f"About {i} hours", "helpful": [1, 1]}]}
            row |= {"category": "Electronics", "is_answerable": i % 4 != 0}
            file.write(json.dumps(row) + "\n")


def test_amazonqa_finds_the_words_that_answer(tmp_path):
    write_amazonqa(tmp_path / "all-qar.jsonl", n=160)
    for example in (example for part in splits("amazonqa", tmp_path).values() for example in part):
        if int(example.id) % 4 == 0:
            assert example.answers == ()
            continue
        (text, start), *_ = example.answers
        assert text == f"about {example.id} hours"
        assert example.pair[start : start + len(text)] == text
    read = splits("amazonqa-answerable", tmp_path).values()
    labels = {e.id: e.label for part in read for e in part}
    assert (labels["4"], labels["5"]) == (0, 1)


@pytest.mark.parametrize("task", ["amazonqa", "amazonqa-answerable"])
def test_products_stay_on_one_side_of_a_cut(tmp_path, task):
    write_amazonqa(tmp_path / "train-qar.jsonl", n=60)
    read = splits(task, tmp_path)
    products = [{example.product for example in part} for part in read.values()]
    assert sum(map(len, products)) == len(set.union(*products)) == 30


def test_no_answer_shares_a_word():
    for passage, answer in (("it works well", "no idea"), ("it works well", " "), ("", "no idea")):
        assert amazonqa.find_best_spans(passage, [answer]) == []


def test_bleu2_on_worked_examples():
    """Two of three unigrams and one of two bigrams; then half as long as the reference."""
    first = amazonqa.compute_bleu2(3, (2, 1), [3])
    assert first == pytest.approx((2 / 3 * 1 / 2) ** 0.5)
    assert amazonqa.compute_bleu2(2, (2, 1), [4]) == pytest.approx(exp(-1))
