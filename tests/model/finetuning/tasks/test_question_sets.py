"""SubjQA and AmazonQA: where the answers are in their passages."""

import csv
import gzip
import json
import random
from collections import Counter

import pytest

from model.finetuning.examples import SPLITS, Sampling, load_examples
from model.finetuning.tasks import amazonqa, find_task, subjqa
from tests.model.finetuning.tasks.test_formats import PUBLISHED, splits

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


def test_a_question_whose_answers_are_not_in_the_review_is_left_out(tmp_path):
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


def read_published(data, split):
    """Question and review of every question that is usable, and the number of those that are not:
    read plainly, an answer found if its letters are in the review's.
    """
    usable, lost = [], 0
    for path in sorted(data.glob(f"*/{split}.csv.gz")):
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        answers = {}
        for row in rows:
            answers.setdefault(row["q_review_id"], []).append(row)
        for same in answers.values():
            review = same[0]["review"].removesuffix("ANSWERNOTFOUND")
            marked = [
                r["human_ans_spans"] for r in same if r["human_ans_spans"] != "ANSWERNOTFOUND"
            ]
            letters = "".join(review.split())
            if marked and not any("".join(answer.split()) in letters for answer in marked):
                lost += 1
            else:
                shown = (same[0]["question"], review)
                usable.append(tuple(" ".join(text.casefold().split()) for text in shown))
    return usable, lost


def test_published_questions_of_subjqa():
    """Questions without the answer that was marked, and those of train that dev or test have too,
    are left out: counted here a second time, from the files.
    """
    data = PUBLISHED / "tasks/subjqa"
    if not data.exists():
        pytest.skip("shared/data is not there: published files cannot be read")
    plain = {split: read_published(data, split) for split in SPLITS}
    counts = {split: Counter() for split in SPLITS}
    read = {
        split: load_examples(find_task("subjqa"), data, split, Sampling(), counts[split])
        for split in SPLITS
    }
    for split in SPLITS:
        assert counts[split]["no marked answer found in its passage"] == plain[split][1] > 0
    later = {*plain["dev"][0], *plain["test"][0]}
    repeated = sum(shown in later for shown in plain["train"][0])
    assert counts["train"]["input also in a later split"] == repeated > 0
    assert len(read["train"]) == len(plain["train"][0]) - repeated
    assert len(read["test"]) == len(plain["test"][0])
    assert not {(e.text, e.pair) for e in read["dev"]} & {(e.text, e.pair) for e in read["train"]}


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
    with path.open("w") as file:
        for i in range(n):
            row = {
                "questionText": "how long does the battery last?",
                "questionType": "descriptive",
                "review_snippets": [
                    "I like it .",
                    f"the battery lasts about {i} hours on one charge .",
                ],
                "answers": [{"answerText": f"About {i} hours", "helpful": [1, 1]}],
                "asin": f"B{i // 2}",
                "category": "Electronics",
                "is_answerable": i % 4 != 0,
                "qid": i,
            }
            file.write(json.dumps(row) + "\n")


def test_amazonqa_finds_the_words_that_answer(tmp_path):
    write_amazonqa(tmp_path / "all-qar.jsonl", n=160)
    for example in (example for part in splits("amazonqa", tmp_path).values() for example in part):
        if example.slices["answerable"] == "no":
            assert example.answers == ()
            continue
        (text, start), *_ = example.answers
        assert text == f"about {example.id} hours"
        assert example.pair[start : start + len(text)] == text
    labels = {
        e.id: e.label for part in splits("amazonqa-answerable", tmp_path).values() for e in part
    }
    assert (labels["4"], labels["5"]) == (0, 1)


def every_span(passage, answers):
    """All runs of words by their BLEU-2, computed one after the other."""
    words, references = passage.split(" "), [answer.lower().split() for answer in answers]
    wanted = {word for reference in references for word in reference}
    found = []
    for length in range(1, min(9, len(words)) + 1):
        for i in range(len(words) - length + 1):
            span = [w.lower() for w in words[i : i + length]]
            if wanted & set(span):
                found.append((-amazonqa.compute_bleu2(span, references), length, i))
    return [" ".join(words[i : i + length]) for _, length, i in sorted(found)[:5]]


def test_the_spans_of_highest_bleu2_are_found():
    draw = random.Random(0)
    inside = 0
    for _ in range(50):
        vocabulary = [f"W{i}" for i in range(draw.choice((4, 8, 30)))]
        passage = " ".join(draw.choices(vocabulary, k=draw.randint(1, 40)))
        answers = [
            " ".join(draw.choices(vocabulary, k=draw.randint(1, 25))).lower()
            for _ in range(draw.randint(1, 3))
        ]
        found = amazonqa.find_best_spans(passage, answers)
        assert [text for text, _ in found] == every_span(passage, answers)
        assert all(passage[start : start + len(text)] == text for text, start in found)
        answer_words = {word for answer in answers for word in answer.split()}
        inside += any(
            not {text.lower().split()[0], text.lower().split()[-1]} <= answer_words
            for text, _ in found
        )
    assert inside, "the best span may begin or end with a word no answer has"


def test_no_answer_shares_a_word():
    assert amazonqa.find_best_spans("it works well", ["no idea"]) == []
    assert amazonqa.find_best_spans("it works well", [" "]) == []
    assert amazonqa.find_best_spans("", ["no idea"]) == []


def test_bleu2_on_worked_examples():
    """Two of three unigrams and one of two bigrams; then half as long as the reference."""
    assert amazonqa.compute_bleu2(["a", "b", "c"], [["a", "b", "d"]]) == pytest.approx(
        (2 / 3 * 1 / 2) ** 0.5
    )
    assert amazonqa.compute_bleu2(["a", "b"], [["a", "b", "c", "d"]]) == pytest.approx(
        2.718281828 ** (1 - 2)
    )


def test_amazonqa_is_streamed(tmp_path):
    """Memory holds the sample, not the file: 8 MB are read within two."""
    import tracemalloc

    with (tmp_path / "train-qar.jsonl").open("w") as file:
        row = {
            "questionText": "q",
            "review_snippets": ["x " * 2500],
            "answers": [],
            "asin": "A",
            "is_answerable": False,
        }
        for i in range(1_600):
            file.write(json.dumps(row | {"qid": i}) + "\n")
    assert (tmp_path / "train-qar.jsonl").stat().st_size > 8e6
    tracemalloc.start()
    examples = load_examples(find_task("amazonqa"), tmp_path, "train", Sampling(n=50))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(examples) == 50
    assert peak < 2e6
