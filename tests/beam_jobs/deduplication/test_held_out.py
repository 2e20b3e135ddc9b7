"""Near copies of dev and test reviews against their definition, however many buckets there are."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.limits import Limits
from amazon_electra.beam_jobs.deduplication import buckets, common_ngrams, held_out, overlaps
from amazon_electra.beam_jobs.deduplication.evaluation_texts import MIN_WORDS
from amazon_electra.beam_jobs.deduplication.held_out import HELD_RUN
from amazon_electra.beam_jobs.reading.work_units import PreparedUnit
from tests.beam_jobs.deduplication.word_texts import (
    draw_copies,
    draw_texts,
    overlap,
    write_matches,
    write_unit,
)

MAX = buckets.MAX_BUCKETS


def find_near(folder, units, of, copies=(), others=buckets.NO_FILES):
    """Return of each unit, by name, which rows nearly repeat a held-out review."""
    (folder / f"matches-{of}").mkdir()
    for unit, rows in copies:
        (folder / f"matches-{of}" / f"{unit}.copies").write_bytes(np.array(rows, "<u4").tobytes())
    copies = [unit for unit, _ in copies]
    (folder / buckets.JOINED).unlink(missing_ok=True)
    counts = buckets.join_unit_starts([counts for counts, _ in units], str(folder))
    parts = list(reversed(list(buckets.list_parts(of))))
    files = write_matches(folder, folder / f"matches-{of}", counts, parts, copies, others)
    return {unit.unit: list(mark_rows(unit.unit, sizes, counts, files)) for unit, sizes in units}


def write_own_matches(folder, counts, part=(0, 1, 1)):
    """Write what the reviews of a unit share with its own held-out ones; return the path."""
    counts = buckets.join_unit_starts([counts], str(folder))
    [path] = write_matches(folder, folder, counts, [part])
    return path


def mark_rows(name, sizes, counts, files):
    """Yield which rows are near copies, a few at a time as they stand in batches."""
    matches = held_out.UnitMatches(held_out.list_blocks(counts)[name], files)
    for first in range(0, len(sizes), 70):
        yield from matches.mark_near(first, sizes[first : first + 70]).tolist()


@pytest.fixture(scope="module")
def reviews():
    """Reviews and copies of them, in an order that mixes both, and which are held out."""
    texts = draw_texts(500, 0)
    texts += draw_copies(texts, 1)
    rng = np.random.default_rng(2)
    rng.shuffle(texts)
    return texts, rng.random(len(texts)) < 0.3


@pytest.mark.parametrize(("of", "most_parts"), [(1, 1024), (4, 2), (64, 1024)])
def test_what_is_near_is_what_the_definition_says(tmp_path, reviews, of, most_parts, monkeypatch):
    """Two units, and few matches counted at once."""
    texts, is_held = reviews
    monkeypatch.setattr(buckets, "MAX_PARTS", most_parts)
    if of == 4:
        monkeypatch.setattr(overlaps, "MATCHES", 16)
        monkeypatch.setattr(held_out, "BLOCK_ROWS", 100)
        monkeypatch.setattr(held_out, "BLOCK_MATCHES", 3_000)  # two blocks or so
    units = [
        write_unit(tmp_path, name, texts[part], is_held[part])
        for name, part in (("u1", slice(600, None)), ("u0", slice(600)))
    ]
    found = find_near(tmp_path, units, of)
    held = [text for text, out in zip(texts, is_held, strict=True) if out]
    expected = [
        not out and any(overlap(text, other) for other in held)
        for text, out in zip(texts, is_held, strict=True)
    ]
    assert found["u0"] + found["u1"] == expected
    assert 80 < sum(expected) < 300


@pytest.mark.parametrize(("most", "groups"), [(1, 10), (10**9, 1)])
def test_as_many_matches_are_read_at_once_as_fit(tmp_path, reviews, most, groups, monkeypatch):
    monkeypatch.setattr(held_out, "BLOCK_ROWS", 100)
    monkeypatch.setattr(held_out, "BLOCK_MATCHES", most)
    texts, is_held = reviews
    counts, sizes = write_unit(tmp_path, "u0", texts, is_held)
    path = write_own_matches(tmp_path, counts)
    places = []
    read_range = storage.read_range

    def note_place(read, first, last):
        if read == path:
            places.append((first, last))
        return read_range(read, first, last)

    monkeypatch.setattr(storage, "read_range", note_place)
    assert len(texts) == 1000
    assert sum(mark_rows("u0", sizes, [counts], [path])) > 10
    assert len(places) == groups
    assert [first for first, _ in places[1:]] == [last for _, last in places[:-1]]
    assert (places[0][0], places[-1][1]) == (0, os.path.getsize(path))


@pytest.mark.parametrize("words", [MIN_WORDS - 1, MIN_WORDS, 7, 8])
def test_a_short_text_is_found_again_from_three_words_on(tmp_path, words):
    text = " ".join(f"w{i}" for i in range(words))
    texts = [text, text.upper(), f"{text} more"]
    unit = write_unit(tmp_path, "u", texts, np.array([True, False, False]))
    assert find_near(tmp_path, [unit], 4) == {"u": [False, words >= MIN_WORDS, words > 7]}


@pytest.mark.parametrize("copies", [1, 2, 101, 1000])
def test_copies_of_a_held_out_text_take_nothing_from_its_protection(tmp_path, copies):
    """Against the definition, which knows no limit: a review that differs by one word, by half of
    the words, and another one; copies stand in two units, some with other signs.
    """
    text, other = draw_texts(2, 6, 20, 30)
    words = text.split()
    held = [text if i % 3 else f"{text.title()}!" for i in range(copies)]
    reviews = [" ".join([*words[:-1], "x"]), " ".join([*words[:18], *(f"z{i}" for i in range(30))])]
    texts = [*held, *reviews, other]
    expected = [False] * copies + [overlap(review, text) for review in [*reviews, other]]
    is_held = np.arange(len(texts)) < copies
    units = [write_unit(tmp_path, f"u{number}", texts, is_held) for number in range(2)]
    for of in (1, 8):
        assert find_near(tmp_path, units, of) == {"u0": expected, "u1": expected}
    assert expected[-3:] == [True, True, False]


PHRASE = "I received this product for free in exchange for my honest and unbiased review"
FOOTER = " ".join(f"f{i}" for i in range(40))


@pytest.mark.parametrize("phrase", [PHRASE, FOOTER])
@pytest.mark.parametrize("of", [1, 8])
def test_a_phrase_of_many_texts_withholds_nothing(tmp_path, phrase, of):
    """Of 300 reviews with a phrase, some with nothing but it and a few words, 30 are held out."""
    texts = [f"{text} {phrase}." for text in draw_texts(300, 6, 1, 40)]
    is_held = np.arange(300) % 10 == 0
    unit = write_unit(tmp_path, "u", texts, is_held)
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
    own = draw_texts(90, 6, 25, 40)
    texts = [f"{PHRASE}. {text}" if i % 2 else f"{text} {PHRASE}." for i, text in enumerate(own)]
    evaluation, held = texts[:20], texts[20:50]
    copies = [copy for text in texts[:50] for copy in disguise(text)]
    reviews = [*held, *texts[50:], *copies]
    is_held = np.arange(len(reviews)) < len(held)
    (tmp_path / "test.txt").write_text("\n".join(evaluation))
    files = held_out.write_withheld_runs([str(tmp_path / "test.txt")], str(tmp_path), Limits())
    others = buckets.join_files(files, str(tmp_path / "heldout.starts"))
    unit = write_unit(tmp_path, "u", reviews, is_held)
    expected = [False] * 70 + [True] * len(copies)
    for of in (1, 8):
        assert find_near(tmp_path, [unit], of, (), others) == {"u": expected}


def test_copies_among_the_reviews_never_make_a_text_common(tmp_path):
    """One held-out text, in several units, and hundreds of its copies with a word changed."""
    [text, *others] = draw_texts(20, 6, 30, 40)
    words = text.split()
    copies = [" ".join([*words[: i % 5], f"z{i}", *words[i % 5 + 1 :]]) for i in range(300)]
    texts = [text, f"{text}!", *others, *copies]
    is_held = np.arange(len(texts)) < 21
    units = [write_unit(tmp_path, f"u{number}", texts, is_held) for number in range(7)]
    expected = [*[False] * 21, *[True] * 300]
    assert all(found == expected for found in find_near(tmp_path, units, 2).values())


def test_a_text_of_common_phrases_only_is_withheld_if_it_is_equal(tmp_path):
    """Templates: of two phrases each, so that a text is one of 144."""
    phrases = [" ".join(f"{sign}{i}" for i in range(20)) for sign in "abcdefghijkl"]
    texts = [f"{one}. {other}." for one in phrases for other in phrases] * 3
    texts = [f"{text}{'!' * (i // 144)}" for i, text in enumerate(texts)]
    is_held = np.arange(len(texts)) < 144
    is_held[[4, 9]] = False
    unit = write_unit(tmp_path, "u", texts, is_held)
    found = find_near(tmp_path, [unit], 4)["u"]
    assert found[:144] == [False] * 144
    assert found[144:] == [i not in (4, 9) for i in range(144)] * 2


def test_many_are_a_share_of_the_reviews(tmp_path, monkeypatch):
    """Of 3,000 reviews 30 or more, of which two are held out: `held` and `more` of each phrase."""
    monkeypatch.setattr(common_ngrams, "COMMON_SHARE", 0.01)
    phrases, own = draw_texts(4, 6, 30, 31), iter(draw_texts(3200, 7, 10, 11))
    counts = [(1, 99), (2, 27), (2, 28), (30, 0)]
    held = [f"{p} {next(own)}" for p, (n, _) in zip(phrases, counts, strict=True) for _ in range(n)]
    more = [f"{next(own)} {p}" for p, (_, n) in zip(phrases, counts, strict=True) for _ in range(n)]
    texts = [*held, *more, more[99], f"{more[99]}!"]  # copies count once
    texts += [next(own) for _ in range(3000 - len(texts))]
    unit = write_unit(tmp_path, "u", texts, np.arange(3000) < len(held))
    for of in (1, 8):
        found = find_near(tmp_path, [unit], of)["u"]
        start = len(held)
        assert found[start : start + 99] == [True] * 99
        assert found[start + 99 : start + 126] == [True] * 27
        assert not any(found[start + 126 : start + 126 + 28])


def test_a_run_that_a_review_repeats_counts_once(tmp_path):
    """The held-out text has four runs, of which the review has one again and again."""
    words = [f"w{i}" for i in range(11)]
    again = " ".join(words[:8] + [f"x{i}" for i in range(9)])
    unit = write_unit(tmp_path, "u", [" ".join(words), f"{again} {again}"], np.array([True, False]))
    assert find_near(tmp_path, [unit], 1) == {"u": [False, False]}


def test_held_out_reviews_of_another_corpus_are_held_out(tmp_path):
    """What near-duplicates lost is not held out."""
    texts = draw_texts(40, 3, 10)
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
        write_unit(tmp_path, "b", [*texts[30:], *texts], is_held),
        write_unit(tmp_path, "a", [*texts[20:30], *texts], is_held),
    ]
    of_other = [i % 10 % 4 in (0, 2) for i in range(20)]
    of_first = [i not in (0, 1) for i in range(10)]
    of_second = [i != 3 for i in range(10)]
    for of in (1, 16):
        found = find_near(tmp_path, units, of, copies, others)
        assert found["a"][10:] == [*of_other, *of_first, *of_second]
        assert found["b"][10:] == [*of_other, *of_first, *of_second]
        assert not any(found["a"][:10] + found["b"][:10])


def test_matches_of_a_bucket_are_written_once(tmp_path, reviews):
    texts, is_held = reviews
    unit, _ = write_unit(tmp_path, "u", texts, is_held)
    first = write_own_matches(tmp_path, unit, (0, 2, 2))
    (tmp_path / "u.runs").unlink()
    assert write_own_matches(tmp_path, unit, (0, 2, 2)) == first


def test_matches_beyond_four_billion_keep_their_places(tmp_path, monkeypatch):
    """Of a part whose matches before the unit's own are 2^33: of a sparse file's end."""
    monkeypatch.setattr(held_out, "BLOCK_ROWS", 4)
    own = np.zeros(2, held_out.MATCH)
    own["row"], own["size"], own["shared"] = (1, 6), 10, 9
    path, before = tmp_path / "000.matches", 1 << 33
    starts = buckets.compute_starts(np.array([before - 5, 5, 1, 1]))
    (tmp_path / "000.matches.starts").write_bytes(starts.tobytes())
    with path.open("wb") as file:
        file.seek(before * own.itemsize)
        file.write(own.tobytes())
    counts = [PreparedUnit("a", 8), PreparedUnit("b", 8)]
    blocks = held_out.list_blocks(counts)["b"]
    near = held_out.UnitMatches(blocks, [str(path)]).mark_near(0, np.full(8, 10))
    assert np.flatnonzero(near).tolist() == [1, 6]
