"""Bad data ends in one line naming file, line or field; short lines are left out and counted."""

import bz2
import gzip
import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.model.finetuning.examples import Sampling, load_examples
from amazon_electra.model.finetuning.files import read_table_rows
from amazon_electra.model.finetuning.tasks import find_task
from tests.model.finetuning.tasks.test_formats import splits

TABLE = "table:text=text,label=label"
NUMBERS = f"{TABLE},shape=regression"
GOOD_LINE = json.dumps({"text": "fine", "label": "a"})
NO_LABEL = json.dumps({"text": "b", "label": None})
LINES = GOOD_LINE.encode() * 5000


def table(n=60, text="t", label=lambda i: i % 2):
    return "text,label\n" + "".join(f"{text}{i},{label(i)}\n" for i in range(n))


def squad(**qa):
    qas = [{"id": "1", "question": "q"} | qa]
    return json.dumps({"data": [{"paragraphs": [{"context": "a b", "qas": qas}]}]})


def question(**changed):
    row = {"questionText": "q", "review_snippets": ["a b"], "answers": [{"answerText": "a"}]}
    return json.dumps(row | {"asin": "A", "qid": 1} | changed)


@pytest.mark.parametrize(
    ("task", "name", "content", "words"),
    [
        (TABLE, "a.json", '[{"text": "a", "label": 1}]', ", line 1: a JSON list; expected an"),
        (TABLE, "a.jsonl", f"{GOOD_LINE}\n5\n", ", line 2: a JSON int; expected an object"),
        (TABLE, "a.jsonl", "{\n", ", line 1: not JSON .*; expected an object a line"),
        (TABLE, "a.jsonl.gz", gzip.compress(LINES)[:60], ": damaged or cut off"),
        (TABLE, "a.jsonl.bz2", bz2.compress(LINES)[:60], ": damaged or cut off"),
        (TABLE, "a.parquet", b"PAR1 nonsense", ": damaged or cut off .*; fetch it again"),
        (TABLE, "a.jsonl", f"{GOOD_LINE}\n{NO_LABEL}", ", line 2: column 'label' has no value"),
        (TABLE, "a.csv", "text,label\nx,1\ny,\n", ", line 3: column 'label' is empty; fill it in"),
        (TABLE, "a.csv", "", "column 'label' holds 0 labels; at least two are needed"),
        (
            "amazon-sentiment",
            "a.txt",
            "__label__3 what\n",
            ", line 1: label '__label__3'",
        ),
        (NUMBERS, "a.csv", table(label=lambda i: "nan"), ", line 2: label 'nan'"),
        ("squad2", "a.json", squad(), ": .*'answers'"),
        ("squad2", "a.json", '{"data": {"a": 1}}', ": "),
        ("squad1", "a.json", squad(answers=[]), ": question 1 .*`task='squad2'`"),
        ("squad2", "a.json", "[1]", ": "),
        ("amazonqa", "a.jsonl", question(review_snippets="a b"), ", line 1: review_snippets"),
        ("amazonqa", "a.jsonl", '{"questionText": "q"}', ", line 1: .*'review_snippets'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path, task, name, content, words):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=words if words[0] not in ":," else name + words):
        splits(find_task(task, path).name, path)


def test_what_amazonqa_has_not_is_nothing(tmp_path):
    lines = [
        question(qid=i, asin=str(i), questionText=f"q {i}", is_answerable=1, **{field: None})
        for i, field in enumerate(["review_snippets", "answers"] * 60)
    ]
    (tmp_path / "a.jsonl").write_text("\n\n".join(lines))
    examples = [
        example for part in splits("amazonqa", tmp_path / "a.jsonl").values() for example in part
    ]
    assert len(examples) == 120
    assert {(e.pair, e.answers) for e in examples} == {("", ()), ("a b", ())}


def test_one_class_says_how_to_take_more(tmp_path):
    (tmp_path / "a.txt").write_text("__label__1 fine\n" * 3 + "__label__2 awful\n")
    with pytest.raises(UserError, match="`n_train`"):
        load_examples(find_task("amazon-sentiment"), tmp_path / "a.txt", "train", Sampling(1))


def test_notes_and_an_unlabelled_test_file_do_not_stop_a_table(tmp_path):
    (tmp_path / "train.csv").write_text(table(100))
    (tmp_path / "test.csv").write_text("text\nu1\nu2\n")
    (tmp_path / "README.md").write_text("# mine\n")
    assert {e.text[0] for part in splits(TABLE, tmp_path).values() for e in part} == {"t"}
    (tmp_path / "dev.csv").write_text(table(20, text="d"))
    assert {e.text[0] for e in splits(TABLE, tmp_path)["test"]} == {"d"}


def test_a_test_file_whose_first_row_has_no_label_is_refused_not_dropped(tmp_path):
    (tmp_path / "train.csv").write_text(table(100))
    (tmp_path / "test.csv").write_text("text,label\nu,\n" + table(20, text="u").partition("\n")[2])
    with pytest.raises(UserError, match=r"test.csv, line 2: column 'label'"):
        find_task(TABLE, tmp_path)


@pytest.mark.parametrize("empty", ["text\nv1\nv2\n", "text,label\nv1,\nv2, \n"])
def test_a_test_file_without_labels_is_counted_and_takes_no_other_with_it(tmp_path, empty):
    (tmp_path / "train.csv").write_text(table(100))
    (tmp_path / "test_1.csv").write_text(table(30, text="u"))
    (tmp_path / "test_2.csv").write_text(empty)
    left_out = Counter()
    read = load_examples(find_task(TABLE, tmp_path), tmp_path, "test", Sampling(), left_out)
    assert {e.text[0] for e in read} == {"u"}
    assert left_out == {"test file without labels": 2}


def test_texts_that_are_none_are_left_out_and_counted(tmp_path):
    good = [{"text": f"t{i}", "label": i % 2} for i in range(60)]
    bad = [{"text": text, "label": 1} for text in ("", " \n", None, float("nan"))]
    bad += [{"text": text, "label": 1} for text in (5, True, ["a"], {"a": "b"})]
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, good + bad)))
    (tmp_path / "train.csv").write_text(table(60))
    left_out = Counter()
    assert len(find_task(TABLE, tmp_path).read(tmp_path, "test", Sampling(), left_out)) == 60
    assert left_out == {"no text": 4, "text is not a string": 4}


def test_numbers_are_not_balanced(tmp_path):
    (tmp_path / "train.tsv").write_text(
        "sentence1\tsentence2\tscore\n" + "".join(f"a {i}\tb\t{i / 100}\n" for i in range(500))
    )
    (tmp_path / "dev.tsv").write_text("sentence1\tsentence2\tscore\nx\tb\t1.0\n")
    train = load_examples(find_task("sts-b"), tmp_path, "train", Sampling(400, balanced=True))
    assert len([e for e in train if not e.is_swapped]) == 400


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


def test_a_parquet_file_that_expands_too_far_is_refused(tmp_path):
    path = tmp_path / "train.parquet"
    pq.write_table(pa.table({"text": ["a b " * 250_000] * 300, "label": [0, 1] * 150}), path)
    assert path.stat().st_size < 100_000
    with pytest.raises(UserError, match=r"train.parquet"):
        list(read_table_rows(path))


def test_a_packed_file_that_holds_far_more_than_its_size_is_refused(tmp_path):
    path = tmp_path / "train.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"text,label\n")
        for _ in range(70):
            file.write(b"x" * (1 << 20) + b"\n")
    with pytest.raises(UserError, match=r"train.csv.gz"):
        list(read_table_rows(path))


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("a.jsonl", '{"text": "' + "x" * 16_000_000, "line 1"),
        ("a.jsonl", "[" * 100_000, "line 1"),
        ("a.csv", "text,label\n" + "x" * 16_000_000, "line 2"),
        ("a.csv", 'text\n"' + ("x" * 999_999 + "\n") * 17, "field limit"),
    ],
    ids=["long", "nested", "wide", "quoted"],
)
def test_a_record_that_no_review_has_is_refused(tmp_path, name, text, named):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UserError, match=f"{name}.*{named}"):
        list(read_table_rows(path))
