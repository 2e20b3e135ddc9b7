"""Near copies of dev and test reviews against their definition, however many buckets there are."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amazon_electra.beam_jobs.core.limits import Limits
from amazon_electra.beam_jobs.deduplication import buckets, held_out
from amazon_electra.beam_jobs.deduplication.buckets import HELD_RUN
from tests.beam_jobs.deduplication import word_texts


def find_near(folder, units, of, copies=(), others=buckets.NO_FILES):
    """Return of each unit, by name, which rows nearly repeat a held-out review."""
    (folder / f"matches-{of}").mkdir()
    for unit, rows in copies:
        (folder / f"matches-{of}" / f"{unit}.copies").write_bytes(np.array(rows, "<u4").tobytes())
    copies = [unit for unit, _ in copies]
    (folder / buckets.JOINED).unlink(missing_ok=True)
    counts = buckets.join_unit_starts([counts for counts, _ in units], str(folder))
    files = word_texts.write_matches(folder, folder / f"matches-{of}", counts, of, copies, others)
    return {unit.unit: list(mark_rows(unit.unit, sizes, counts, files)) for unit, sizes in units}


def mark_rows(name, sizes, counts, files):
    """Yield which rows are near copies, a few at a time as they stand in batches."""
    matches = held_out.UnitMatches([unit.unit for unit in counts].index(name), files)
    for first in range(0, len(sizes), 70):
        yield from matches.mark_near(first, sizes[first : first + 70]).tolist()


@pytest.fixture(scope="module")
def reviews():
    """Reviews and copies of them, in an order that mixes both, and which are held out."""
    texts = word_texts.draw_texts(500, 0)
    texts += word_texts.draw_copies(texts, 1)
    rng = np.random.default_rng(2)
    rng.shuffle(texts)
    return texts, rng.random(len(texts)) < 0.3


@pytest.mark.parametrize("of", [1, 4, 64])
def test_what_is_near_is_what_the_definition_says(tmp_path, reviews, of, monkeypatch):
    """Two units, and few matches counted at once."""
    texts, is_held = reviews
    if of == 4:
        monkeypatch.setattr(held_out, "MATCHES", 16)
    units = [
        word_texts.write_unit(tmp_path, name, texts[part], is_held[part])
        for name, part in (("u1", slice(600, None)), ("u0", slice(600)))
    ]
    found = find_near(tmp_path, units, of)
    held = [text for text, out in zip(texts, is_held, strict=True) if out]
    expected = [
        not out and any(word_texts.overlap(text, other) for other in held)
        for text, out in zip(texts, is_held, strict=True)
    ]
    assert found["u0"] + found["u1"] == expected
    assert 80 < sum(expected) < 300


PHRASE = "I received this product for free in exchange for my honest and unbiased review"
FOOTER = " ".join(f"f{i}" for i in range(40))


@pytest.mark.parametrize("phrase", [PHRASE, FOOTER])
@pytest.mark.parametrize("of", [1, 8])
def test_a_phrase_of_many_texts_withholds_nothing(tmp_path, phrase, of):
    """Of 300 reviews with a phrase, some with nothing but it and a few words, 30 are held out."""
    texts = [f"{text} {phrase}." for text in word_texts.draw_texts(300, 6, 1, 40)]
    is_held = np.arange(300) % 10 == 0
    unit = word_texts.write_unit(tmp_path, "u", texts, is_held)
    assert sum(find_near(tmp_path, [unit], of)["u"]) == 0


def disguise(text):
    """A text as it may come again: other signs, case, spaces, one more sentence, another word."""
    words = text.split()
    yield text.upper()
    yield "  ".join(words).replace(" w", " - w") + " !!"
    yield f"Someone wrote this before me and I agree. {text}"
    yield " ".join([*words[:3], "another", *words[4:]])
    yield " ".join(["Another", *words[1:]])
    yield f"{text} Thank you"


def test_copies_of_a_text_with_a_phrase_are_withheld(tmp_path):
    """Of dev and test reviews and of an evaluation file, wherever the phrase stands."""
    own = word_texts.draw_texts(90, 6, 25, 40)
    texts = [f"{PHRASE}. {text}" if i % 2 else f"{text} {PHRASE}." for i, text in enumerate(own)]
    evaluation, held = texts[:20], texts[20:50]
    copies = [copy for text in texts[:50] for copy in disguise(text)]
    reviews = [*held, *texts[50:], *copies]
    is_held = np.arange(len(reviews)) < len(held)
    (tmp_path / "test.txt").write_text("\n".join(evaluation))
    files = held_out.write_withheld_runs([str(tmp_path / "test.txt")], str(tmp_path), Limits())
    others = buckets.join_files(files, str(tmp_path / "heldout.starts"))
    unit = word_texts.write_unit(tmp_path, "u", reviews, is_held)
    expected = [False] * 70 + [True] * len(copies)
    for of in (1, 8):
        assert find_near(tmp_path, [unit], of, (), others) == {"u": expected}


def test_copies_among_the_reviews_never_make_a_text_common(tmp_path):
    """One held-out text, in several units, and hundreds of its copies with a word changed."""
    [text, *others] = word_texts.draw_texts(20, 6, 30, 40)
    words = text.split()
    copies = [" ".join([*words[: i % 5], f"z{i}", *words[i % 5 + 1 :]]) for i in range(300)]
    texts = [text, f"{text}!", *others, *copies]
    is_held = np.arange(len(texts)) < 21
    units = [word_texts.write_unit(tmp_path, f"u{number}", texts, is_held) for number in range(7)]
    expected = [*[False] * 21, *[True] * 300]
    assert all(found == expected for found in find_near(tmp_path, units, 2).values())


def test_a_text_of_common_phrases_only_is_withheld_if_it_is_equal(tmp_path):
    """Templates: of two phrases each, so that a text is one of 144."""
    phrases = [" ".join(f"{sign}{i}" for i in range(20)) for sign in "abcdefghijkl"]
    texts = [f"{one}. {other}." for one in phrases for other in phrases] * 3
    texts = [f"{text}{'!' * (i // 144)}" for i, text in enumerate(texts)]
    is_held = np.arange(len(texts)) < 144
    is_held[[4, 9]] = False
    unit = word_texts.write_unit(tmp_path, "u", texts, is_held)
    found = find_near(tmp_path, [unit], 4)["u"]
    assert found[:144] == [False] * 144
    assert found[144:] == [i not in (4, 9) for i in range(144)] * 2


def test_many_are_a_share_of_the_reviews(tmp_path, monkeypatch):
    """Of 3,000 reviews 30 or more, of which two are held out: `held` and `more` of each phrase."""
    monkeypatch.setattr(held_out, "COMMON_SHARE", 0.01)
    phrases, own = word_texts.draw_texts(4, 6, 30, 31), iter(word_texts.draw_texts(3200, 7, 10, 11))
    counts = [(1, 99), (2, 27), (2, 28), (30, 0)]
    held = [f"{p} {next(own)}" for p, (n, _) in zip(phrases, counts, strict=True) for _ in range(n)]
    more = [f"{next(own)} {p}" for p, (_, n) in zip(phrases, counts, strict=True) for _ in range(n)]
    texts = [*held, *more, more[99], f"{more[99]}!"]  # copies count once
    texts += [next(own) for _ in range(3000 - len(texts))]
    unit = word_texts.write_unit(tmp_path, "u", texts, np.arange(3000) < len(held))
    for of in (1, 8):
        found = find_near(tmp_path, [unit], of)["u"]
        start = len(held)
        assert found[start : start + 99] == [True] * 99
        assert found[start + 99 : start + 126] == [True] * 27
        assert not any(found[start + 126 : start + 126 + 28])


def test_held_out_reviews_of_another_corpus_are_held_out(tmp_path):
    """What near-duplicates lost is not held out."""
    texts = word_texts.draw_texts(40, 3, 10)
    sides = ["test", "pretrain", "dev", "train"]
    for k in range(2):
        rows = texts[10 * k : 10 * k + 10]
        sentences = [[" ".join(t.split()[:3]), " ".join(t.split()[3:])] for t in rows]
        table = {
            "split": [sides[i % 4] for i in range(10)],
            "has_title": [False] * 10,
            "sentences": sentences,
        }
        pq.write_table(pa.table(table), tmp_path / f"{k}.parquet")
    paths = (str(tmp_path / "0.parquet"), str(tmp_path / "1.parquet"))
    other = held_out.write_corpus_runs((7, paths), str(tmp_path))
    assert held_out.write_corpus_runs((7, ()), str(tmp_path)) == other, "once"
    others = buckets.join_files([other], str(tmp_path / "starts"))
    assert others.count_rows() * HELD_RUN.itemsize == os.path.getsize(other) > 0
    copies = [("b", [3]), ("a", [0, 1])]
    is_held = np.array([True] * 10 + [False] * 40)
    units = [
        word_texts.write_unit(tmp_path, "b", [*texts[30:], *texts], is_held),
        word_texts.write_unit(tmp_path, "a", [*texts[20:30], *texts], is_held),
    ]
    of_other = [i % 10 % 4 in (0, 2) for i in range(20)]
    of_first = [i not in (0, 1) for i in range(10)]
    of_second = [i != 3 for i in range(10)]
    for of in (1, 16):
        found = find_near(tmp_path, units, of, copies, others)
        assert found["a"][10:] == [*of_other, *of_first, *of_second]
        assert found["b"][10:] == [*of_other, *of_first, *of_second]
        assert not any(found["a"][:10] + found["b"][:10])
