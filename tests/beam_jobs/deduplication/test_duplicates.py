"""Which copy stays, exact and near, whatever the order and the cut of the dump."""

import random

import numpy as np
import pytest

from beam_jobs.deduplication import exact_duplicates, near_duplicates
from beam_jobs.deduplication.exact_duplicates import hash_text
from tests.beam_jobs.dumps import review, rows_of, run_job, text_of, write_lines

NONE_SEEN = exact_duplicates.sort_hashes(b"")


def test_the_smallest_key_stays():
    hashes = [hash_text(t) for t in ("a", "b", "A", "c", "a")]
    parts = [packed(hashes[:3], [5, 1, 3]), packed(hashes[3:], [1, 4])]
    assert lost(parts, dumps=[0, 0]) == ({"u0": [0], "u1": [1]}, {})


def test_the_earliest_dump_stays_whatever_the_keys_and_what_was_seen_goes():
    hashes = [hash_text(t) for t in ("a", "b", "b", "c", "a")]
    parts = [packed(hashes[:3], [5, 7, 6]), packed(hashes[3:], [1, 4])]
    assert lost(parts, dumps=[0, 1]) == ({"u0": [1], "u1": [1]}, {})
    assert lost(parts, dumps=[1, 0]) == ({"u0": [0, 1]}, {})
    seen = exact_duplicates.sort_hashes(b"".join(hash_text(t) for t in ("z", "c", "a", "c")))
    assert lost(parts, [0, 1], seen) == ({"u0": [1]}, {"u0": [0], "u1": [0, 1]})


def test_texts_that_share_half_a_hash_are_told_apart():
    first, second, other = (b"12345678" + end for end in (b"abcdefgh", b"ijklmnop", b"qrstuvwx"))
    seen = exact_duplicates.sort_hashes(second + first + first)
    assert exact_duplicates.find_known_rows(
        packed([first, second, other], [1, 2, 3]), seen
    ).tolist() == [
        True,
        True,
        False,
    ]


def packed(hashes: list[bytes], keys: list[int]) -> np.ndarray:
    return exact_duplicates.pack_rows(b"".join(hashes), np.array(keys, np.uint64))


def lost(
    parts: list[np.ndarray], dumps: list[int], seen: np.ndarray = NONE_SEEN
) -> tuple[dict, dict]:
    copies, known = exact_duplicates.find_duplicates(["u0", "u1"], parts, dumps, seen)
    return tuple({unit: rows.tolist() for unit, rows in found.items()} for found in (copies, known))


def test_buckets_together_find_what_one_finds():
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, 50, (4, 500)).astype(">u8") * np.uint64(0x051EB851EB851EB8)
    parts = [
        exact_duplicates.pack_rows(np.repeat(h, 2).tobytes(), rng.integers(0, 1 << 60, 500))
        for h in hashes
    ]
    units = [f"u{i}" for i in range(4)]
    one, _ = exact_duplicates.find_duplicates(units, parts, [0] * 4, NONE_SEEN)
    for of in (2, 16):
        found: dict[str, list[int]] = {}
        for bucket in range(of):
            bounds = [
                exact_duplicates.locate_bucket(exact_duplicates.compute_offsets(part), bucket, of)
                for part in parts
            ]
            stretches = [
                part[first:last] for part, (first, last) in zip(parts, bounds, strict=True)
            ]
            for unit, rows in exact_duplicates.find_duplicates(
                units, stretches, [0] * 4, NONE_SEEN
            )[0].items():
                found.setdefault(unit, []).extend(rows.tolist())
        assert {u: sorted(r) for u, r in found.items()} == {u: r.tolist() for u, r in one.items()}


def test_the_same_copies_stay_in_any_order(tmp_path):
    """Copies differ in user and stars; the dump is shuffled, its files have the same name."""
    records = [review(i, text_of(i % 60), reviewerID=f"U{i}") for i in range(200)]
    kept = []
    for seed in (0, 1):
        shuffled = random.Random(seed).sample(records, len(records))
        paths = []
        for k in range(1 + seed):
            folder = tmp_path / f"{seed}-{k}"
            folder.mkdir()
            paths.append(write_lines(folder / "dump.json", shuffled[k :: 1 + seed]))
        result = run_job(tmp_path / f"corpus{seed}", "--input", *paths)
        assert result["dropped"] == {"duplicate": 140}
        kept.append(
            {
                (r["review_id"], r["stars"], r["split"], *r["sentences"])
                for r in rows_of(tmp_path / f"corpus{seed}")
            }
        )
    assert kept[0] == kept[1]


def test_near_duplicates(tmp_path):
    texts = [text_of(i, 8) for i in range(40)]
    near = [f"{text} Really." for text in texts[:10]]
    write_lines(
        tmp_path / "d.json",
        [review(i, text) for i, text in enumerate([*texts, *near, texts[0].upper()])],
    )
    result = run_job(tmp_path / "corpus", "--input", tmp_path / "d.json", "--near_duplicates", 0.8)
    assert result["dropped"] == {"duplicate": 1, "near duplicate": 10}
    every = run_job(tmp_path / "all", "--input", tmp_path / "d.json", "--withhold-own", "false")
    assert every["dropped"] == {"duplicate": 1}


def test_minhash_estimates_the_jaccard_similarity():
    words = [f"w{i}" for i in range(102)]
    rows = near_duplicates.compute_signatures(
        [" ".join(words), " ".join(words[:52] + [f"x{i}" for i in range(50)]), "too short"]
    )
    assert abs(np.mean(rows[0] == rows[1]) - 50 / 150) < 0.12
    assert rows[2][0] == near_duplicates.NO_RUNS


@pytest.mark.parametrize("threshold", [0.05, 0.8, 0.98, 0.99, 1.0])
def test_every_threshold_has_bands(threshold):
    bands, width = near_duplicates.choose_bands(threshold)
    assert bands * width <= near_duplicates.PERMUTATIONS
