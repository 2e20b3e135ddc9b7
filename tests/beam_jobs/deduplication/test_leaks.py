"""No held-out text is trained on, in whatever form it comes: each of these once leaked."""

import re

import numpy as np
import pytest

from amazon_electra.beam_jobs.deduplication.held_out import UnitMatches
from amazon_electra.beam_jobs.text.cleaning import clean_text
from amazon_electra.beam_jobs.text.personal_data import mask_personal_data
from tests.beam_jobs.deduplication.word_texts import find_withheld
from tests.beam_jobs.dumps import review, rows_of, run_job, text_of, texts_in, write_lines

CHINESE = "这个手机很好用电池也很耐用屏幕清晰价格便宜物流很快"
OTHER = "昨天买的耳机声音不错但是线太短了不太方便"


@pytest.mark.parametrize(
    ("evaluation", "texts", "left"),
    [
        # a line with a comma or a tab is a text as a whole
        ("Good phone, works well.\n", ["Good phone, works well."], []),
        ("So good\tworks well\n", ["So good works well"], []),
        # a text without spaces, or nearly the same one
        *((f"{text}\n", [text, f"{text}。"], []) for text in ("这个手机很好用", "สินค้าดีมาก")),
        (f"{CHINESE}\n", [f"{CHINESE}非常满意", OTHER], [OTHER]),
        # a short text does not escape by punctuation
        ("Works well. Thank you\n", ["works well, thank you", "Works WELL – thank you!"], []),
        # two words are in half of all reviews
        ("Love it!\nok\n", ["Love it!", "ok"], ["Love it!", "ok"]),
    ],
)
def test_texts_that_are_withheld_in_any_form(tmp_path, evaluation, texts, left):
    cleaned = list(map(clean_text, texts))
    left_out = find_withheld(tmp_path, evaluation, cleaned)
    assert [text for text, out in zip(cleaned, left_out, strict=True) if not out] == left


@pytest.fixture
def reviews() -> list[dict]:
    """Return pairs of nearly the same long review, and of the same short one."""
    texts = [text_of(i, 6) for i in range(150)]
    short = [f"Works {word} for me" for word in ("well", "badly", "fine", "here", "now", "never")]
    near = [f"{text} Thanks!" for text in texts] + [f"{text}!!" for text in short]
    return [review(i, text) for i, text in enumerate([*texts, *short, *near])]


def list_words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text))


def list_leaks(*corpora) -> list[str]:
    """Return the pretrain and train reviews with a near copy in dev or test."""
    sides: dict[str, set[str]] = {}
    for row in (row for corpus in corpora for row in rows_of(corpus)):
        key = list_words(" ".join(row["sentences"])).removesuffix(" Thanks")
        sides.setdefault(key, set()).add(row["split"])
    return [
        key for key, found in sides.items() if found & {"dev", "test"} and found - {"dev", "test"}
    ]


def test_no_near_copy_of_a_dev_or_test_review_is_trained_on(tmp_path, reviews, monkeypatch):
    dump = write_lines(tmp_path / "d.json", reviews)
    split = ("--split", "pretrain=50,train=10,dev=20,test=20")
    result = run_job(tmp_path / "corpus", "--input", dump, *split)
    assert list_leaks(tmp_path / "corpus") == []
    withheld = result["dropped"]["withheld"]
    assert withheld > 20
    assert any(f"{withheld:,} of " in line for line in result["warnings"])
    monkeypatch.setattr(UnitMatches, "mark_near", lambda *given: np.zeros(len(given[2]), bool))
    run_job(tmp_path / "without", "--input", dump, *split)
    assert len(list_leaks(tmp_path / "without")) == withheld


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
