"""No text of an evaluation file gets into the corpus, whatever the form of the file."""

from amazon_electra.beam_jobs.text.cleaning import clean_text
from amazon_electra.beam_jobs.text.personal_data import mask_personal_data
from tests.beam_jobs.deduplication.word_texts import find_withheld
from tests.beam_jobs.dumps import review, run_job, text_of, texts_in, write_lines

LONG = text_of(1, 6)


def test_exact_and_near_texts_are_withheld_and_counted(tmp_path):
    evaluation = tmp_path / "test.ft.txt"
    evaluation.write_text(f"__label__2 Title: {LONG}\n__label__1 Short: Not good at all\n")
    other = tmp_path / "sst.tsv"
    other.write_text(f"sentence\tlabel\n{text_of(2, 5)}\t1\n")
    texts = [
        LONG.upper(),
        f"Well. {LONG} Bye.",
        "not good at all",
        "Not good at all, sorry",
        text_of(2, 5),
        text_of(3, 5),
    ]
    write_lines(tmp_path / "d.json", [review(i, text) for i, text in enumerate(texts)])
    result = run_job(
        tmp_path / "corpus",
        *("--input", tmp_path / "d.json", "--withhold", evaluation, other),
        *("--split", "pretrain=1"),
    )
    assert result["dropped"] == {"withheld": 4}
    assert set(texts_in(tmp_path / "corpus")) == {"Not good at all, sorry", text_of(3, 5)}


def test_a_text_is_withheld_whatever_the_job_makes_of_it(tmp_path):
    texts = [
        "Call 555-123-4567 now please",
        "Mail me@example.com for info",
        "Obsessed!It works fine",
    ]
    for repair in (True, False):
        cleaned = [clean_text(text, repair) for text in texts]
        masked = [mask_personal_data(text)[0] for text in cleaned]
        assert masked[:2] == ["Call [phone] now please", "Mail [email] for info"]
        (folder := tmp_path / str(repair)).mkdir()
        found = find_withheld(folder, "\n".join(texts), [*cleaned, *masked, text_of(3, 5)])
        assert found == [*[True] * 6, False]
