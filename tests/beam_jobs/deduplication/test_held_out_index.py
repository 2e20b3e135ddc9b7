"""The index of held-out texts against its definition, written out for one text at a time."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_jobs.deduplication import held_out, index_files, withholding
from beam_jobs.deduplication.evaluation_texts import MIN_WORDS
from beam_jobs.deduplication.index_files import COLUMNS, RUN, is_written
from beam_jobs.deduplication.withholding import (
    HeldOutIndex,
    IndexWriter,
    list_forms,
    load_index,
    write_index,
)
from beam_jobs.text.splits import SPLITS
from beam_jobs.text.word_runs import BATCH_TEXTS


def list_runs(text):
    """The runs of 8 words; a shorter text of 3 or more is one as a whole."""
    words = text.lower().split()
    if len(words) < 8:
        return [tuple(words)] if len(words) >= MIN_WORDS else []
    return [tuple(words[i : i + 8]) for i in range(len(words) - 7)]


def overlap(one, other):
    runs, others = list_runs(one), list_runs(other)
    shared = len(set(runs) & set(others))
    return shared > 0 and shared >= min(len(runs), len(set(others))) / 2


def draw_texts(count, seed, shortest=1, longest=40):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(shortest, longest, count)
    return [" ".join(f"w{n}" for n in rng.integers(0, 3000, size)) for size in sizes]


def draw_copies(texts, seed):
    """Each with some of its words exchanged, from none to a third, or cut short."""
    rng, copies = np.random.default_rng(seed), []
    for text in texts:
        words = text.split()
        for place in np.flatnonzero(rng.random(len(words)) < rng.choice([0, 0.03, 0.1, 0.3])):
            words[place] = f"x{rng.integers(1000)}"
        first = rng.integers(0, 3)
        copies.append(" ".join(words[first : len(words) - rng.integers(0, 3)]))
    return copies


@pytest.fixture(scope="module")
def held():
    return draw_texts(700, 0)


def save(writer, folder):
    folder.mkdir(exist_ok=True)
    writer.save(str(folder))
    return HeldOutIndex(str(folder))


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
    overlaps = [any(overlap(review, text) for text in held) for review in copies]
    assert near[200:900].tolist() == [
        o and not e for o, e in zip(overlaps, expected[200:900], strict=True)
    ]
    assert not near[:200].any()
    assert 100 < sum(overlaps) < 600
    assert index.find_near_texts(copies).tolist() == overlaps
    assert not index.is_empty


def test_many_small_reads_find_what_one_finds(tmp_path, held, monkeypatch):
    """Of a filter that lets much through, of stretches of the index that hold a run or two, and
    with a few matches counted at once.
    """
    writer = IndexWriter()
    writer.add_texts(held)
    expected = save(writer, tmp_path / "large").find_near_texts(draw_copies(held, 1))
    for name, value in {"MIN_WORD_BITS": 8, "RUNS_PER_WORD": 64, "STRETCH_RUNS": 1}.items():
        monkeypatch.setattr(index_files, name, value)
    monkeypatch.setattr(withholding, "BLOCK_RUNS", 16)
    monkeypatch.setattr(withholding, "MATCHES", 16)
    writer = IndexWriter()
    writer.add_texts(held)
    index = save(writer, tmp_path / "small")
    assert len(index._stretches) > 4096
    assert index.find_near_texts(draw_copies(held, 1)).tolist() == expected.tolist()
    assert not index.find_near_texts(draw_texts(2000, 7)).any()


def test_an_index_of_an_earlier_version_is_written_again(tmp_path):
    (tmp_path / "index.json").write_text('{"texts": 0, "bits": "…", "owners": "…"}')
    assert not is_written(str(tmp_path))
    save(IndexWriter(), tmp_path)
    assert is_written(str(tmp_path))


def test_groups_are_cut_between_numbers_and_not_too_large():
    numbers = np.array([0, 0, 0, 2, 2, 5, 6, 6, 9])
    weights = np.array([2, 2, 2, 1, 1, 3, 9, 1, 1])
    assert list(withholding.cut_groups(numbers, weights, 5)) == [(0, 3), (3, 6), (6, 8), (8, 9)]
    assert list(withholding.cut_groups(numbers, weights, 99)) == [(0, 9)]
    assert list(withholding.cut_groups(numbers[:0], weights[:0], 5)) == []


@pytest.mark.parametrize(("words", "is_near"), [(15, True), (14, True), (13, False)])
def test_half_of_the_runs_are_enough(tmp_path, words, is_near):
    """Of a text of 20 words, 13 runs, a review shares its first words: 8, 7 or 6 runs."""
    [text] = draw_texts(1, 5, 20, 21)
    writer = IndexWriter()
    writer.add_texts([text])
    review = " ".join([*text.split()[:words], *(f"z{i}" for i in range(30))])
    assert save(writer, tmp_path).find_near_texts([review]).tolist() == [is_near]


@pytest.mark.parametrize("words", [MIN_WORDS - 1, MIN_WORDS, 7, 8])
def test_a_short_text_is_found_again_from_three_words_on(tmp_path, words):
    text = " ".join(f"w{i}" for i in range(words))
    writer = IndexWriter()
    writer.add_texts([text])
    index = save(writer, tmp_path)
    assert index.find_near_texts([text, f"{text} more"]).tolist() == [words >= MIN_WORDS, words > 7]


def test_reviews_of_earlier_corpora_have_numbers_of_their_own(tmp_path, held):
    """In one file after the other: a text's runs are counted by its number."""
    texts = [text for text in held if len(text.split()) >= 8][:10]
    for k in range(2):
        part = texts[5 * k : 5 * k + 5]
        table = {"split": ["test"] * 5, "sentences": [[text] for text in part]}
        pq.write_table(pa.table(table), tmp_path / f"{k}.parquet")
    paths = str(tmp_path / "0.parquet"), str(tmp_path / "1.parquet")
    file = held_out.write_earlier_runs((0, paths), str(tmp_path))
    sizes = [len(set(list_runs(text))) for text in texts]
    assert file["texts"] == 10
    assert held_out.read_texts(file)["runs"].tolist() == sizes
    assert np.bincount(held_out.read_runs(file, 0, 1)["text"]).tolist() == sizes


def test_nothing_held_out_withholds_nothing(tmp_path):
    index = save(IndexWriter(), tmp_path)
    assert index.is_empty
    exact, near = index.find_withheld(["a text of some words that is long enough", ""])
    assert not exact.any()
    assert not near.any()
    assert index.find_near_texts([]).tolist() == []


def test_a_later_dump_is_not_held_out_from_an_earlier_one(tmp_path):
    texts = draw_texts(3, 3, 20)
    writer = IndexWriter()
    for dump, text in enumerate(texts):
        runs = held_out.hash_runs([text], np.array([0]))
        writer.add_runs(runs["run"], runs["text"], 1, dump)
    index = save(writer, tmp_path)
    for dump in range(3):
        found = index.find_near_texts(texts, dump)
        assert found.tolist() == [number <= dump for number in range(3)]


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


def test_dev_and_test_reviews_are_held_out_by_their_rows(held):
    texts = [text for text in held if len(text.split()) >= 8][:300]
    sides = np.arange(300) % len(SPLITS)
    runs = held_out.list_held_out_runs(texts, sides, first_row=1000)
    expected = [1000 + i for i in range(300) if SPLITS[i % 4] in ("dev", "test")]
    assert sorted(set(runs["text"].tolist())) == expected
    sizes = {row: len(set(list_runs(texts[row - 1000]))) for row in expected}
    rows, counts = np.unique(runs["text"], return_counts=True)
    assert dict(zip(rows.tolist(), counts.tolist(), strict=True)) == sizes
    assert len(held_out.list_held_out_runs(texts, np.zeros(300, int), 0)) == 0


@pytest.mark.parametrize("of", [1, 4, 16])
def test_reviews_of_earlier_corpora_and_of_the_dumps_are_in_one_index(
    tmp_path, held, of, monkeypatch
):
    """Two earlier files, two units of two dumps; what near-duplicates lost is not held out."""
    texts = [text for text in held if len(text.split()) >= 8][:40]
    sides = ["test", "pretrain", "dev", "train"]
    for k in range(2):
        pq.write_table(
            pa.table(
                {
                    "split": [sides[i % 4] for i in range(10)],
                    "sentences": [
                        [" ".join(t.split()[:3]), " ".join(t.split()[3:])]
                        for t in texts[10 * k : 10 * k + 10]
                    ],
                }
            ),
            tmp_path / f"{k}.parquet",
        )
    paths = (str(tmp_path / "0.parquet"), str(tmp_path / "1.parquet"))
    earlier = held_out.write_earlier_runs((7, paths), str(tmp_path))
    assert earlier["path"] == str(tmp_path / "00007.heldout")
    assert held_out.write_earlier_runs((7, ()), str(tmp_path)) == earlier, "once"
    counts = [{"unit": "u1", "dump": 1}, {"unit": "u0", "dump": 0}]
    for unit in counts:
        first = 30 if unit["unit"] == "u1" else 20
        runs = held_out.hash_runs(texts[first : first + 10], np.arange(10))
        packed, unit["held_out"] = held_out.pack_runs(runs)
        (tmp_path / f"{unit['unit']}.heldout").write_bytes(packed)
    near = [("u1", np.array([3], "<u4").tobytes()), ("u0", np.array([0, 1], "<u4").tobytes())]
    runs_of_all = sum(f["starts"][-1] for f in held_out.list_held_out_files(counts, "", [earlier]))
    monkeypatch.setattr(held_out, "PART_RUNS", 2 * runs_of_all // of)
    parts = list(held_out.list_index_parts(counts, [earlier]))
    assert parts == [(part, of) for part in range(of)]
    folder = str(tmp_path / "index")

    def write_parts():
        return [
            held_out.write_index_part(part, str(tmp_path), folder, counts, near, [earlier])
            for part in reversed(parts)
        ]

    assert held_out.finish_index(counts, folder, write_parts()) == folder
    assert sorted(p.name for p in (tmp_path / "index").iterdir()) == sorted(
        ["index.json", *(f"{name}.npy" for name in COLUMNS)]
    )
    index = HeldOutIndex(folder)
    of_earlier = [i % 10 % 4 in (0, 2) for i in range(20)]
    of_first = [i not in (0, 1) for i in range(10)]
    of_second = [i != 3 for i in range(10)]
    for dump, own in (
        (0, [*of_earlier, *[False] * 20]),
        (1, [*of_earlier, *of_first, *[False] * 10]),
        (2, [*of_earlier, *of_first, *of_second]),
    ):
        assert index.find_near_texts(texts, dump).tolist() == own
    made = (tmp_path / "index" / "index.json").stat().st_mtime_ns
    held_out.finish_index(counts, folder, write_parts())
    assert (tmp_path / "index" / "index.json").stat().st_mtime_ns == made, "once"


def test_parts_that_are_joined_are_the_index_that_was_written_whole(tmp_path):
    """Of random runs: of several texts, of one only, and some parts have few."""
    rng = np.random.default_rng(0)
    runs = rng.integers(0, 2**64, 5000, dtype=np.uint64) >> np.uint64(1)
    runs[:100] = runs[100:200]
    rows = np.empty(len(runs), RUN)
    rows["run"], rows["text"] = np.sort(runs), rng.integers(0, 50, len(runs))
    for of in (1, 4, 16):
        for part in range(of):
            sorter = index_files.RunSorter(part, of)
            for half in (rows[::2], rows[1::2]):
                sorter.add_rows(half)
            sorter.save(str(tmp_path / f"parts-{of}"), len(rows))
        (tmp_path / f"joined-{of}").mkdir()
        index_files.join_parts(str(tmp_path / f"parts-{of}"), str(tmp_path / f"joined-{of}"))
    for name in index_files.RUN_COLUMNS:
        whole = (tmp_path / "joined-1" / f"{name}.npy").read_bytes()
        for of in (4, 16):
            assert (tmp_path / f"joined-{of}" / f"{name}.npy").read_bytes() == whole
    found = np.load(tmp_path / "joined-4" / "runs.npy")
    assert found["run"].tolist() == rows["run"].tolist()
    stretches = np.load(tmp_path / "joined-4" / "stretches.npy")
    assert stretches[-1] == len(rows)
    assert (np.diff(stretches) >= 0).all()
