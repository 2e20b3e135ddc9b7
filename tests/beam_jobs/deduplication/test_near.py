"""Which near copies stay, whatever the order and the cut of the dump."""

from collections import Counter, defaultdict

import numpy as np
import pytest

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.deduplication import buckets, clusters, near
from amazon_electra.beam_jobs.reading.work_units import PreparedUnit
from amazon_electra.beam_jobs.text.word_runs import BATCH_TEXTS
from tests.beam_jobs.deduplication.test_exact import write_units
from tests.beam_jobs.dumps import find_clusters, review, rows_of, run_job, text_of, write_lines


@pytest.mark.parametrize("mode", ["", "in_memory"])
def test_all_reviews_stay_with_the_clusters_that_dropping_keeps_the_first_of(tmp_path, mode):
    """One text four times, nearly so twice, and in short; an exact copy of a near one."""
    texts = [text_of(i, 8) for i in range(20)]
    near_ones = [f"{texts[0]} Really.", f"{texts[0]} Truly.", f"{texts[1]} Really."]
    copies = [texts[0].upper(), texts[0], texts[0].lower(), near_ones[0].upper(), "ok", "OK"]
    every = [review(i, text) for i, text in enumerate([*texts, *near_ones, *copies])]
    write_lines(tmp_path / "d.json", every)
    asked = ["--input", tmp_path / "d.json", "--near-duplicates", 0.8, "--withhold-own", "false"]
    kept = run_job(tmp_path / "kept", *asked, "--near-duplicates-action", "annotate", mode=mode)
    assert kept["dropped"] == {"duplicate": 5}
    assert run_job(tmp_path / "left", *asked, mode=mode)["dropped"] == {
        "duplicate": 5,
        "near duplicate": 3,
    }
    sizes: dict[int, list[int]] = {}
    for row in rows_of(tmp_path / "kept"):
        sizes.setdefault(row["near_cluster"], []).append(row["near_cluster_size"])
    assert sorted(sizes.values()) == [*([1] for _ in range(18)), [2], [2, 2], [7, 7, 7]]
    left = rows_of(tmp_path / "left")
    for row in left:
        assert row["near_cluster"] == int.from_bytes(row["text_hash"][:8])
    assert {row["near_cluster"]: row["near_cluster_size"] for row in left} == {
        cluster: found[0] for cluster, found in sizes.items()
    }
    again = [*(f"{text} Oh." for text in texts), *texts[:4], *near_ones, "ok"]
    later = write_lines(tmp_path / "later.json", [review(i, t) for i, t in enumerate(again)])
    both = run_job(tmp_path / "both", *asked, "--input", later, mode=mode)
    assert both["dropped"] == {"duplicate": 13, "near duplicate": 23}
    columns = "review_id", "near_cluster", "near_cluster_size"
    told = (
        [[row[c] for c in columns] for row in rows] for rows in (rows_of(tmp_path / "both"), left)
    )
    assert next(told) == next(told), "a later dump changes nothing"


@pytest.mark.parametrize(("of", "rounds"), [(1, 0), (8, 0), (8, 2), (8, 12)])
def test_links_are_followed_to_the_first_text_of_a_cluster(tmp_path, of, rounds):
    """Chains of 40 texts and of several of these, texts that hang on several others, and some of
    earlier corpora; in three dumps and the files of three parts.
    """
    rng, texts = np.random.default_rng(0), 2000
    names = rng.integers(0, 1 << 64, texts, np.uint64)
    dumps = np.sort(rng.integers(-1, 3, texts)).astype(np.int32)  # in the order of their keys
    reviews = np.where(dumps < 0, 0, rng.integers(1, 4, texts)).astype(np.uint32)
    links = [(text, text - 1) for text in range(1, texts) if text % 40 or rng.random() < 0.1]
    links += [(int(text), int(rng.integers(0, text))) for text in rng.integers(1500, texts, 500)]
    links += [(parent, parent) for _, parent in links if dumps[parent] >= 0]
    found = np.array([(names[t], names[p], dumps[t], reviews[t]) for t, p in links], clusters.LINK)
    paths = [str(tmp_path / f"{k}.links") for k in range(3)]
    for path, rows in zip(paths, np.array_split(rng.permutation(found), 3), strict=True):
        collected = buckets.BucketedRows(clusters.LINK)
        collected.add_rows(rows)
        storage.write_bytes(f"{path}.starts", collected.save(path).tobytes())
    parts, folder = list(buckets.list_parts(of)), str(tmp_path)
    joined = near.join_links(paths[::-1], folder)
    chosen = [clusters.choose_links(part, joined, folder) for part in parts]
    state = clusters.join_round(chosen)
    for number in range(rounds):
        led = [one for part in parts for one in clusters.follow_links(part, state, folder, number)]
        state = clusters.join_round(led, state)
    assert state.are_followed == (rounds == 12)
    state = clusters.follow_rest(state, parts, folder)
    units = [PreparedUnit(f"{dump}", 1, dump) for dump in range(3)]
    written = [clusters.write_clusters(part, state, folder, units) for part in parts]
    got = np.concatenate([np.fromfile(path, clusters.CLUSTER) for path in written])
    assert sorted(got.tolist()) == sorted(follow_one_by_one(found))


def follow_one_by_one(links):
    parents, of_dump, reviews = {}, {}, {}
    for text, parent, dump, count in links.tolist():
        of_dump[text], reviews[text] = dump, count
        parents.setdefault(text, set()).add(parent)
    roots = {}
    for text in parents:
        root = text
        while others := parents.get(root, set()) - {root}:
            root = min(others)
        roots[text] = root
    sizes = Counter()
    for text, root in roots.items():
        sizes[root, of_dump[text]] += reviews[text]
    return [(text, root, sizes[root, of_dump[text]]) for text, root in roots.items()]


def test_annotating_nothing_is_refused(tmp_path):
    with pytest.raises(UserError, match="`near_duplicates_action"):
        run_job(tmp_path / "corpus", "--input", "d", "--near-duplicates-action", "annotate")


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
    links = [near.write_links(part, folder, folder, 0.8, counts) for part in parts]
    assert [near.write_links(part, folder, folder, 0.8, []) for part in parts] == links, "once"
    assert all(map(storage.read_bytes, links)), "each part has its share"
    known = find_clusters(parts, near.join_links(links, folder), folder, counts)
    members = defaultdict(list)
    for part in parts:
        for unit, packed in clusters.find_members(part, folder, counts, known):
            members[unit].append(packed)
    with_copies = [unit for pair in members.items() for unit in clusters.write_copies(pair, folder)]
    copies = {u: storage.read_bytes(f"{folder}/{u}.copies") for u in with_copies}
    copies = {unit: np.frombuffer(rows, "<u4").tolist() for unit, rows in copies.items()}
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
    """Rows of ten numbers; 0 leads, having the smallest key of the earliest dump."""
    signatures = np.zeros((5, 10), np.uint32)
    signatures[1, :2], signatures[2, :3], signatures[4, :1] = 7, 7, 7
    rows = np.zeros(5, near.BAND)
    rows["run"], rows["text"], rows["row"] = (9, 9, 9, 9, 8), range(5), range(5)
    rows["key"] = (3, 4, 5, 1, 0)
    asked = []

    def read(units, numbers):
        asked.append((units.tolist(), numbers.tolist()))
        return signatures[numbers + 3 * units]

    rows["row"][3:] -= 3  # of the second unit, which is of a later dump
    parts = [rows[:3], rows[3:]]
    links = near.find_near_copies(parts, [0, 1], read, 0.8)
    assert sorted(links.tolist()) == [(0, 0, 0, 1), (1, 0, 0, 1), (3, 0, 1, 1)]
    assert asked == [([0, 0, 0, 1], [0, 1, 2, 0])]
    of_earlier = near.find_near_copies(parts, [clusters.EARLIER_DUMP, 1], read, 0.8)
    assert of_earlier.tolist() == [(3, 0, 1, 1)]
    rows["text"][:4] = 0
    assert not len(near.find_near_copies(parts, [0, 1], read, 0.8))
    assert len(asked) == 2, "of one text nothing is read"


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
