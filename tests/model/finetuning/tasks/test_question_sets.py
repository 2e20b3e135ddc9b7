"""SubjQA and AmazonQA: where the answers are in their passages."""

import json
from collections import Counter
from math import exp

import pytest

from amazon_electra.model.finetuning.examples import Sampling, load_examples
from amazon_electra.model.finetuning.tasks import amazonqa, find_task, subjqa
from tests.model.finetuning.tasks.test_formats import splits

SUBJQA = "question,review,q_review_id,human_ans_spans,human_ans_indices"


@pytest.mark.parametrize(
    ("review", "answer", "start", "found"),
    [
        ("Good bedding.  And cheap.", "bedding .", 5, ("bedding.", 5)),
        ("The pre-popped kernels are large.", "pre - popped kernels", 0, ("pre-popped kernels", 4)),
        ("So good. Really so  good!", "so good !", 9, ("so  good!", 16)),
        ("good, good, good", "go od", 7, ("good", 6)),
        ("Good bedding.", "awful", 0, None),
        ("Good bedding.", " ", 4, None),
    ],
)
def test_an_answer_is_found_ignoring_white_space(review, answer, start, found):
    assert subjqa.align_answer(review, answer, start) == found


def test_a_question_without_found_answers_is_left_out(tmp_path):
    rows = [
        'How?,"Good bedding. ANSWERNOTFOUND",a,bedding .,"(5, 14)"',
        'How?,"Good bedding. ANSWERNOTFOUND",a,nothing like it,"(5, 14)"',
        'Why?,"Good bedding. ANSWERNOTFOUND",b,nothing like it,"(5, 14)"',
        'Why?,"Good bedding. ANSWERNOTFOUND",b,ANSWERNOTFOUND,"(14, 28)"',
        'Who?,"Good bedding. ANSWERNOTFOUND",c,ANSWERNOTFOUND,"(14, 28)"',
    ]
    (tmp_path / "test.csv").write_text("\n".join([SUBJQA, *rows]))
    (tmp_path / "train.csv").write_text("\n".join([SUBJQA, rows[4].replace("bedding", "kettle")]))
    left_out = Counter()
    examples = {
        e.id: e.answers
        for e in load_examples(find_task("subjqa"), tmp_path, "test", Sampling(), left_out)
    }
    assert examples == {"a": (("bedding.", 5),), "c": ()}
    assert left_out == {"no marked answer found in its passage": 1}


def test_subjqa_joins_the_answers_of_several_annotators(tmp_path):
    (tmp_path / "grocery").mkdir()
    review = "Good coffee and cheap. ANSWERNOTFOUND"
    header = "domain,question,review,q_review_id,human_ans_spans,human_ans_indices"
    rows = [
        f'grocery,How is it?,"{review}",a,Good coffee,"(0, 11)"',
        f'grocery,How is it?,"{review}",a,cheap,"(16, 21)"',
        f'grocery,How is it?,"{review}",a,ANSWERNOTFOUND,"(23, 37)"',
        f'grocery,Is it hot?,"{review}",b,ANSWERNOTFOUND,"(23, 37)"',
    ]
    (tmp_path / "grocery" / "test.csv").write_text("\n".join([header, *rows]))
    examples = {e.id: e for e in subjqa.read_subjqa_questions(tmp_path / "grocery" / "test.csv")}
    assert examples["a"].answers == (("Good coffee", 0), ("cheap", 16))
    assert examples["b"].answers == ()
    assert "ANSWERNOTFOUND" not in examples["a"].pair


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
    labels = {
        e.id: e.label for part in splits("amazonqa-answerable", tmp_path).values() for e in part
    }
    assert (labels["4"], labels["5"]) == (0, 1)


def test_no_answer_shares_a_word():
    assert amazonqa.find_best_spans("it works well", ["no idea"]) == []
    assert amazonqa.find_best_spans("it works well", [" "]) == []
    assert amazonqa.find_best_spans("", ["no idea"]) == []


def test_bleu2_on_worked_examples():
    """Two of three unigrams and one of two bigrams; then half as long as the reference."""
    first = amazonqa.compute_bleu2(3, (2, 1), [3])
    assert first == pytest.approx((2 / 3 * 1 / 2) ** 0.5)
    assert amazonqa.compute_bleu2(2, (2, 1), [4]) == pytest.approx(exp(-1))
