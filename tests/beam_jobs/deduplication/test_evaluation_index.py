"""The index of evaluation texts against its definition, written out for one text at a time."""

import json

import pytest

from beam_jobs.deduplication import overlaps
from beam_jobs.deduplication.evaluation_index import (
    COLUMNS,
    EvaluationIndex,
    IndexWriter,
    list_forms,
    load_index,
    write_index,
)
from beam_jobs.deduplication.evaluation_texts import MIN_WORDS
from beam_jobs.text.word_runs import BATCH_TEXTS
from tests.beam_jobs.deduplication.word_texts import draw_copies, draw_texts, overlap


@pytest.fixture(scope="module")
def held():
    return draw_texts(700, 0)


def find_overlaps(index, texts):
    """Whether each text is held out or overlaps with one that is."""
    exact, near = index.find_withheld(texts)
    return (exact | near).tolist()


def save(writer, folder):
    folder.mkdir(exist_ok=True)
    writer.save(str(folder))
    return EvaluationIndex(str(folder))


def test_what_is_withheld_is_what_the_definition_says(tmp_path, held):
    """More texts than are hashed at once, in the index and of the reviews."""
    writer = IndexWriter()
    writer.add_texts([*held, held[0].upper(), "", "..."])
    index = save(writer, tmp_path)
    copies = draw_copies(held, 1)
    reviews = [*draw_texts(200, 2), *copies, *(text.upper() for text in held[:300]), "", "!!!"]
    assert len(reviews) > 4 * BATCH_TEXTS
    exact, near = index.find_withheld(reviews)
    equal = {text.lower() for text in held}
    expected = [review.lower() in equal and review != "" for review in reviews]
    assert exact.tolist() == expected
    is_near = [any(overlap(review, text) for text in held) for review in copies]
    assert near[200:900].tolist() == [
        o and not e for o, e in zip(is_near, expected[200:900], strict=True)
    ]
    assert not near[:200].any()
    assert 100 < sum(is_near) < 600
    either = [o or e for o, e in zip(is_near, expected[200:900], strict=True)]
    assert find_overlaps(index, copies) == either


def test_a_filter_that_lets_much_through_finds_the_same(tmp_path, held, monkeypatch):
    """With a few matches counted at once."""
    copies = [*draw_copies(held, 1), *draw_texts(300, 7)]
    writer = IndexWriter()
    writer.add_texts(held)
    expected = find_overlaps(save(writer, tmp_path / "large"), copies)
    monkeypatch.setattr(overlaps, "MIN_FILTER_WORDS", 256)
    monkeypatch.setattr(overlaps, "RUNS_PER_WORD", 64)
    monkeypatch.setattr(overlaps, "MATCHES", 16)
    writer = IndexWriter()
    writer.add_texts(held)
    assert find_overlaps(save(writer, tmp_path / "small"), copies) == expected
    assert not any(expected[len(held) :])


@pytest.mark.parametrize(("words", "is_near"), [(15, True), (14, True), (13, False)])
def test_half_of_the_runs_are_enough(tmp_path, words, is_near):
    """Of a text of 20 words, 13 runs, a review shares its first words: 8, 7 or 6 runs."""
    [text] = draw_texts(1, 5, 20, 21)
    writer = IndexWriter()
    writer.add_texts([text])
    review = " ".join([*text.split()[:words], *(f"z{i}" for i in range(30))])
    assert find_overlaps(save(writer, tmp_path), [review]) == [is_near]


def test_nothing_held_out_withholds_nothing(tmp_path):
    index = save(IndexWriter(), tmp_path)
    exact, near = index.find_withheld(["a text of some words that is long enough", ""])
    assert not exact.any()
    assert not near.any()
    assert find_overlaps(index, []) == []


def test_the_index_says_what_it_is_made_of_and_is_made_once(tmp_path, held):
    file = tmp_path / "test.txt"
    file.write_text("".join(f"{text}\n" for text in held if len(text.split()) >= MIN_WORDS))
    folder = tmp_path / "index"
    write_index([str(file)], str(folder), reviews=iter(["a review of the corpus itself"]))
    made = json.loads((folder / "index.json").read_text())
    distinct = {text for text in held if len(text.split()) >= MIN_WORDS}
    assert made["texts"] == len(distinct) + 1
    assert sorted(made) == sorted([*COLUMNS, "texts"])
    file.write_text("another text that is held out now\n")
    write_index([str(file)], str(folder))
    assert json.loads((folder / "index.json").read_text()) == made
    exact, _ = load_index(str(folder)).find_withheld(
        ["A review of the corpus itself!", "another text that is held out now"]
    )
    assert exact.tolist() == [True, False]


def test_a_text_is_held_out_with_and_without_its_personal_data():
    plain, masked = sorted(list_forms("Mail me@example.com  for info"), key=lambda t: "@" not in t)
    assert plain == "Mail me@example.com for info"
    assert "example" not in masked
    assert list_forms(" \n ") == set()
    assert list_forms("fine by me") == {"fine by me"}
