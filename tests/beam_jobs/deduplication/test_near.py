"""Which near copies stay, whatever the order and the cut of the dump."""

import itertools
from collections import defaultdict

import numpy as np
import pytest

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.deduplication import buckets, near
from amazon_electra.beam_jobs.text.word_runs import BATCH_TEXTS
from tests.beam_jobs.deduplication.test_exact import write_units
from tests.beam_jobs.dumps import review, run_job, text_of, write_lines


@pytest.mark.parametrize("mode", ["", "in_memory"])
def test_the_first_of_near_copies_stays(tmp_path, mode):
    """One text four times, nearly so twice, and in short; an exact copy of a near one."""
    texts = [text_of(i, 8) for i in range(20)]
    near_ones = [f"{texts[0]} Really.", f"{texts[0]} Truly.", f"{texts[1]} Really."]
    copies = [texts[0].upper(), texts[0], texts[0].lower(), near_ones[0].upper(), "ok", "OK"]
    every = [review(i, text) for i, text in enumerate([*texts, *near_ones, *copies])]
    write_lines(tmp_path / "d.json", every)
    asked = ["--input", tmp_path / "d.json", "--near-duplicates", 0.8, "--withhold-own", "false"]
    one = run_job(tmp_path / "one", *asked, mode=mode)
    assert one["dropped"] == {"duplicate": 5, "near duplicate": 3}


@pytest.mark.parametrize(("of", "place"), [(1, "local"), (2, "memory"), (8, "local")])
def test_each_near_copy_is_found_in_the_buckets_of_its_bands(tmp_path, of, place, monkeypatch):
    """A pair of texts at a time is compared; of a store only the signatures of candidates."""
    monkeypatch.setattr(near, "PAIRS", 1)
    texts = [text_of(i, 8) for i in range(40)]
    counts = write_units(
        tmp_path,
        {
            "b": texts,
            "a": [*(f"{text} Really." for text in texts[:30]), "too short", "too short"],
            "c": [text_of(99, 8), f"{texts[35]} Really.", texts[7].upper()],
        },
    )
    folder, reads = str(tmp_path), []
    if place == "memory":
        folder = f"memory://{tmp_path}"
        for path in tmp_path.iterdir():
            storage.write_bytes(f"{folder}/{path.name}", path.read_bytes())
        read_each = storage.read_each

        def note_stretches(stretches):
            reads.extend(wanted := list(stretches))
            return read_each(wanted)

        monkeypatch.setattr(storage, "read_each", note_stretches)
    parts = list(buckets.list_parts(of))
    members = defaultdict(list)
    found = [list(near.find_in_part(part, folder, 0.8, counts)) for part in parts]
    assert all(found), "each part has its share"
    for unit, packed in itertools.chain(*found):
        members[unit].append(packed)
    for pair in members.items():
        near.write_copies(pair, folder)
    copies = {unit: storage.read_bytes(f"{folder}/{unit}.copies") for unit in members}
    copies = {u: np.unique(np.frombuffer(rows, "<u4")).tolist() for u, rows in copies.items()}
    assert copies == {"a": list(range(30)), "c": [1]}
    rows = {(path[-12], first // near.SIGNATURE) for path, first, _ in reads if "sign" in path}
    copied = {(unit, row) for unit in "ab" for row in range(30)} | {("b", 35), ("c", 1)}
    assert rows == (copied if place == "memory" else set())


def test_signatures_of_many_texts_are_those_of_each_alone():
    """More than are hashed at once, and texts without a run of three words among them."""
    texts = [text_of(i, 3) if i % 3 else "too short" for i in range(BATCH_TEXTS + 20)]
    together = near.compute_signatures(texts)
    assert together.shape == (len(texts), 128)
    for i in (0, 1, BATCH_TEXTS - 1, BATCH_TEXTS, BATCH_TEXTS + 1, BATCH_TEXTS + 19):
        assert np.array_equal(together[i], near.compute_signatures([texts[i]])[0])
    assert near.compute_signatures([]).shape == (0, 128)


def test_near_copies_agree_with_the_leader_in_the_threshold_at_least():
    """Rows of ten numbers; that with the smallest key leads."""
    signatures = np.zeros((5, 10), np.uint32)
    signatures[1, :2], signatures[2, :3], signatures[4, :1] = 7, 7, 7
    rows = np.zeros(5, near.BAND)
    rows["run"], rows["text"], rows["row"] = (9, 9, 9, 9, 8), range(5), range(5)
    rows["key"] = (1, 4, 5, 3, 0)
    asked = []

    def read(units, numbers):
        asked.append((units.tolist(), numbers.tolist()))
        return signatures[numbers + 3 * units]

    rows["row"][3:] -= 3  # of the second unit
    parts = [rows[:3], rows[3:]]

    def find():
        found = near.find_near_copies(parts, read, 0.8)
        return {int(unit): numbers.tolist() for unit, numbers in found}

    assert find() == {0: [1], 1: [0]}
    assert asked == [([0, 0, 0, 1], [0, 1, 2, 0])]
    rows["text"][:4] = 0
    assert find() == {}
    assert len(asked) == 1, "of one text nothing is read"


def test_minhash_estimates_the_jaccard_similarity():
    words = [f"w{i}" for i in range(102)]
    rows = near.compute_signatures(
        [" ".join(words), " ".join(words[:52] + [f"x{i}" for i in range(50)]), "too short"]
    )
    assert abs(np.mean(rows[0] == rows[1]) - 50 / 150) < 0.12
    assert rows[2][0] == near.NO_RUNS


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8, 0.9, 0.95])
def test_pairs_at_the_threshold_share_a_band(threshold):
    """Of pairs of signatures that agree in just so many values, 95 of 100 are candidates."""
    rng, pairs = np.random.default_rng(0), 3000
    size = near.PERMUTATIONS
    one = rng.integers(0, 1 << 31, (pairs, size)).astype(np.uint32)
    agree = rng.random((pairs, size)).argsort(1) < np.ceil(threshold * size)
    other = np.where(agree, one, one + np.uint32(1))
    bands, _ = near.choose_bands(threshold)
    equal = [
        near.hash_band(one, band, threshold) == near.hash_band(other, band, threshold)
        for band in range(bands)
    ]
    assert np.any(equal, axis=0).mean() >= 0.95
