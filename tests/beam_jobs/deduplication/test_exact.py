"""Which copy stays, whatever the order and the cut of the dump."""

import collections
import random

import numpy as np
import pytest

from amazon_electra.beam_jobs.deduplication import buckets, exact, near
from amazon_electra.beam_jobs.deduplication.exact import hash_text
from amazon_electra.beam_jobs.reading.work_units import PreparedUnit
from tests.beam_jobs.deduplication.word_texts import write_starts
from tests.beam_jobs.dumps import review, rows_of, run_job, text_of, write_lines


def test_the_smallest_key_stays():
    """Of equal texts; two others share half a hash."""
    hashes = [hash_text(t) for t in ("a", "b", "A", "c", "a")]
    hashes += [b"12345678" + end for end in (b"abcdefgh", b"ijklmnop")]
    parts = [packed(hashes[:3], [5, 1, 3]), packed(hashes[3:], [1, 4, 1, 2])]
    found = {unit: rows.tolist() for unit, rows in exact.find_duplicates(parts)}
    assert found == {0: [0], 1: [1]}


def packed(hashes: list[bytes], keys: list[int]) -> np.ndarray:
    return exact.pack_rows(b"".join(hashes), np.array(keys, np.uint64))


def test_the_same_copies_stay_in_any_order(tmp_path):
    """Copies differ in user and stars, or in title and label alone; files have the same name."""
    records = [
        review(i % 120, text_of(i % 60), summary=f"Title {i}", why=f"{i % 7}") for i in range(200)
    ]
    kept = []
    for seed in (0, 1):
        shuffled = random.Random(seed).sample(records, len(records))
        paths = []
        for k in range(1 + seed):
            folder = tmp_path / f"{seed}-{k}"
            folder.mkdir()
            paths.append(write_lines(folder / "dump.json", shuffled[k :: 1 + seed]))
        result = run_job(tmp_path / f"corpus{seed}", "--input", *paths, "--labels", "why")
        assert result["dropped"] == {"duplicate": 140}
        kept.append(
            {
                (r["review_id"], r["stars"], r["split"], r["label.why"], *r["sentences"])
                for r in rows_of(tmp_path / f"corpus{seed}")
            }
        )
    assert kept[0] == kept[1]


def find_starts(rows):
    return buckets.find_starts(rows["high"].astype(np.uint64))


def write_units(folder, texts_of):
    """Leave hashes and bands as the first pass does; return the counts. Keys count up."""
    counts, key = [], 0
    for unit, texts in texts_of.items():
        rows = packed([hash_text(t) for t in texts], list(range(key, key + len(texts))))
        key += len(texts)
        (folder / f"{unit}.hashes").write_bytes(rows.tobytes())
        bands = buckets.BucketedRows(buckets.BAND)
        for band in near.list_band_rows(near.hash_bands(texts, 0.8), rows):
            bands.add_rows(band)
        starts = bands.save(str(folder / f"{unit}.bands"))
        write_starts(folder, unit, hashes=find_starts(rows), bands=starts)
        counts.append(PreparedUnit(unit, len(texts)))
    return buckets.join_unit_starts(counts, str(folder))


@pytest.mark.parametrize("of", [1, 2, 16])
def test_each_copy_is_found_in_its_bucket(tmp_path, of):
    texts = {
        "b": [f"text {i}" for i in range(40)],
        "a": [f"text {i}" for i in range(20, 60)],
        "c": ["only here", "text 3"],
    }
    counts = write_units(tmp_path, texts)
    found = collections.defaultdict(list)
    for number in range(of):
        of_bucket = list(exact.find_in_bucket((number, of), str(tmp_path), counts))
        sizes = [len(texts[unit]) for unit, _ in of_bucket]
        assert sizes == sorted(sizes, reverse=True), "those of the larger units first"
        for unit, packed in of_bucket:
            found[unit] += np.frombuffer(packed, exact.ROW_NUMBER).tolist()
    assert {unit: sorted(rows) for unit, rows in found.items()} == {"a": list(range(20)), "c": [1]}
