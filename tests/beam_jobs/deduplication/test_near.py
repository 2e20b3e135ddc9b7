"""Which near copies stay, whatever the order and the cut of the dump."""

import itertools
from collections import defaultdict

import numpy as np
import pytest

from amazon_electra.beam_jobs.deduplication import near
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
    asked = ["--input", tmp_path / "d.json", "--near-duplicates", 0.8, "--split", "pretrain=1"]
    one = run_job(tmp_path / "one", *asked, mode=mode)
    assert one["dropped"] == {"duplicate": 5, "near duplicate": 3}


@pytest.mark.parametrize("of", [1, 8])
def test_each_near_copy_is_found_in_the_buckets_of_its_bands(tmp_path, of):
    texts = [text_of(i, 8) for i in range(40)]
    counts = write_units(
        tmp_path,
        {
            "b": texts,
            "a": [*(f"{text} Really." for text in texts[:30]), "too short", "too short"],
            "c": [text_of(99, 8), f"{texts[35]} Really.", texts[7].upper()],
        },
    )
    members = defaultdict(set)
    found = [list(near.find_in_bucket((n, of), str(tmp_path), counts)) for n in range(of)]
    assert all(found), "each bucket has its share"
    for unit, packed in itertools.chain(*found):
        members[unit] |= set(np.frombuffer(packed, "<u4").tolist())
    assert members == {"a": {*range(30)}, "c": {1}}


def test_bands_of_many_texts_are_those_of_each_alone():
    """More than are hashed at once, and texts without a run of three words among them."""
    texts = [text_of(i, 3) if i % 3 else "too short" for i in range(BATCH_TEXTS + 20)]
    together = near.hash_bands(texts, 0.8)
    for i in (0, 1, BATCH_TEXTS - 1, BATCH_TEXTS, BATCH_TEXTS + 1, BATCH_TEXTS + 19):
        assert np.array_equal(together[i], near.hash_bands([texts[i]], 0.8)[0])
    assert together.astype(bool).all(axis=1).tolist() == [bool(i % 3) for i in range(len(texts))]
    assert near.hash_bands([], 0.8).shape[0] == 0
