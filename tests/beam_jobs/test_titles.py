"""A title is the first sentence of its review, and decides neither its side nor its copies."""

from collections import Counter

import pytest

from amazon_electra.beam_jobs.config import TextConfig
from amazon_electra.beam_jobs.deduplication.held_out import read_held_out_batches
from amazon_electra.beam_jobs.text.preparation import TextPreparer
from tests.beam_jobs.dumps import read_as_scored, review, rows_of, run_job, texts_in, write_lines

TITLES = ["Great kettle", "Never again!", "", None, 7, "Call 555-123-4567 <b>now</b>", "Five Stars"]


@pytest.mark.parametrize(
    ("title", "text", "sentence"),
    [
        ("Great  kettle", "It boils.", "Great kettle."),
        *(("Great kettle!", "It boils.", "Great kettle!"), ("It boils", "it boils. And how", "")),
        *(("I", "It boils.", "I."), ("I bought it and…", "I bought it and it broke.", "")),
        *((" <br/> ", "It boils.", ""), (None, "It boils.", ""), (float("nan"), "It boils.", "")),
        ("long " * 20, "It boils.", ""),
    ],
)
def test_a_title_is_a_sentence_or_nothing(title, text, sentence):
    preparer = TextPreparer(TextConfig(max_characters=50), Counter())
    assert preparer.make_title(title, text) == sentence


def write_dump(folder, titles=TITLES, count=120):
    records = [review(i, summary=titles[i % len(titles)]) for i in range(count)]
    return write_lines(folder / "dump.json", records)


def test_training_and_scoring_read_the_same_text(tmp_path):
    dump = write_dump(tmp_path)
    run_job(tmp_path / "corpus", "--input", dump)
    rows = rows_of(tmp_path / "corpus")
    scored = read_as_scored(dump, tmp_path / "scores").texts
    assert sorted(texts_in(tmp_path / "corpus")) == sorted(scored)
    firsts = {row["sentences"][0] for row in rows if row["has_title"]}
    assert firsts == {"Great kettle.", "Never again!", "Call [phone] now.", "Five Stars."}
    assert sum(not row["has_title"] for row in rows) == pytest.approx(120 * 3 / 7, abs=3)
    paths = map(str, (tmp_path / "corpus").glob("*.parquet"))
    held_out = [text for texts in read_held_out_batches(paths) for text in texts]
    assert held_out
    assert all(text.startswith("Item ") for text in held_out)


def test_titles_change_neither_sides_nor_ids(tmp_path):
    dump = write_dump(tmp_path)
    run_job(tmp_path / "with", "--input", dump)
    run_job(tmp_path / "without", "--input", dump, "--title", "false")
    with_titles, without = (
        {row["review_id"]: row for row in rows_of(tmp_path / name)} for name in ("with", "without")
    )
    assert with_titles.keys() == without.keys()
    for key, row in with_titles.items():
        bare = without[key]
        assert (row["split"], row["text_hash"]) == (bare["split"], bare["text_hash"])
        assert row["sentences"][row["has_title"] :] == bare["sentences"]
        assert not bare["has_title"]
