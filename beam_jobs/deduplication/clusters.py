"""Clusters of near-duplicates: the links that near.py finds, followed to the clusters' first texts.

A near copy of several leaders belongs to that with the smallest hash, which may be a near copy too:
who follows these links comes to the first text of the cluster, which is no near copy and stays. A
link leads to the same dump or an earlier one, and a cluster's size counts the reviews of one dump,
exact copies among them: a later dump changes nothing of an earlier one.

Links lie in files bucket by bucket (buckets.py), by text and by parent, so that no worker holds
more than the texts of a bucket. In a round all texts of a parent are led on to its parent, which
doubles the links that are followed: after n rounds 2^n.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.deduplication import buckets
from amazon_electra.beam_jobs.deduplication.buckets import BucketedFiles, BucketedRows, Part
from amazon_electra.beam_jobs.deduplication.exact import (
    PACKED_ROW,
    ROW_NUMBER,
    UnitRows,
    group_by_unit,
)
from amazon_electra.beam_jobs.reading.work_units import UnitSize
from amazon_electra.beam_jobs.text.spans import find_runs, mark_firsts

LINK = np.dtype([("text", "<u8"), ("parent", "<u8"), ("dump", "<i4"), ("reviews", "<u4")])
"""A text that nearly repeats another one, which comes first, both by the first half of their
hashes; the first dump that has it, and how many reviews there have it."""
CLUSTER = np.dtype([("text", "<u8"), ("root", "<u8"), ("size", "<u4")])
"""A text, the first one of its cluster, and how many reviews of the text's dump are in it."""
MEMBER = np.dtype([("row", "<u4"), ("size", "<u4"), ("cluster", "<u8"), ("is_copy", "?")])
"""A review of a unit, how many are in its cluster, the first text of that, and whether that is
another text than its own."""
NO_PARENT = np.uint64(0xFFFFFFFFFFFFFFFF)
EARLIER_DUMP = -1
"""Number of the dumps of earlier corpora."""
ROUNDS = 5
"""That workers share, enough for 16 links in turn. A link leads to a smaller key, which is a hash,
so that there are few in turn: of 79,278 reviews 2 at a threshold of 0.8 and 4 at 0.3. More are
followed by one worker (`follow_rest`), bucket by bucket too."""
MAX_ROUNDS = 40
"""For more links than there are texts. Corpora that were made apart may have links in a circle."""


@dataclass(frozen=True)
class Links:
    """LINK of the texts that have a parent, one each, twice: by their texts and by the parents."""

    by_text: BucketedFiles
    by_parent: BucketedFiles
    are_followed: bool
    """Whether all parents are the first texts of their clusters."""


def choose_parents(links: np.ndarray) -> np.ndarray:
    """Return one LINK of each text, sorted by it: to the parent with the smallest hash, and to
    itself only if it has no other.
    """
    links = links.take(np.argsort(np.ascontiguousarray(links["text"]), kind="stable"))
    texts, parents = (np.ascontiguousarray(links[name]) for name in ("text", "parent"))
    firsts = find_runs(texts)[:-1]
    chosen = links.take(firsts)
    if len(firsts):
        parents[parents == texts] = NO_PARENT
        least = np.minimum.reduceat(parents, firsts)
        chosen["parent"] = np.where(least == NO_PARENT, chosen["text"], least)
    return chosen


class LinkFiles:
    """Collects LINK, one of each text, in the two files of a part."""

    def __init__(self) -> None:
        self._kinds = {name: BucketedRows(LINK, name) for name in ("text", "parent")}

    def add_links(self, links: np.ndarray) -> None:
        for rows in self._kinds.values():
            rows.add_rows(links)

    def save(self, name: str) -> str:
        starts = [rows.save(f"{name}.{kind}") for kind, rows in self._kinds.items()]
        storage.write_bytes(f"{name}.starts", np.concatenate(starts).tobytes())
        return name


def choose_links(part: Part, found: BucketedFiles, folder: str) -> tuple[str, bool]:
    """Write the parent of each text of a part, of all links found; return the name of its files,
    and that the parents may have parents.
    """
    links = LinkFiles()
    with buckets.open_part(part, found, LINK) as read:
        for bucket in buckets.list_buckets_of(part):
            links.add_links(choose_parents(read_rows(read(bucket), LINK)))
    return links.save(storage.join_path(folder, f"chosen-{part[0]:03d}")), True


def follow_links(part: Part, links: Links, folder: str, number: int) -> Iterator[tuple[str, bool]]:
    """Lead the texts whose parents are in a part on to the parents' parents; yield the name of
    their files, and whether any was led on. Nothing is to do for links that are followed.
    """
    if links.are_followed:
        return
    led, is_changed = LinkFiles(), False
    with (
        buckets.open_part(part, links.by_text, LINK) as read_texts,
        buckets.open_part(part, links.by_parent, LINK, "parent") as read_children,
    ):
        for bucket in buckets.list_buckets_of(part):
            known = read_rows(read_texts(bucket), LINK)
            for given in read_children(bucket):
                children = given.copy()
                places, is_known = find_texts(known, children["parent"])
                children["parent"][is_known] = known["parent"][places]
                is_changed |= not np.array_equal(given["parent"], children["parent"])
                led.add_links(children)
    yield led.save(storage.join_path(folder, f"round{number}-{part[0]:03d}")), is_changed


def join_round(written: Sequence[tuple[str, bool]], links: Links | None = None) -> Links:
    """Join the starts of what the parts of a round wrote; return all of it, or `links` if they had
    nothing to do.
    """
    if not written:
        assert links
        return links
    names = sorted(name for name, _ in written)
    joined = f"{names[0]}.joined"
    buckets.join_starts([f"{name}.starts" for name in names], joined)
    by_text, by_parent = (
        BucketedFiles(tuple(f"{name}.{kind}" for name in names), joined, number, 2)
        for number, kind in enumerate(("text", "parent"))
    )
    return Links(by_text, by_parent, not any(is_changed for _, is_changed in written))


def follow_rest(links: Links, parts: Sequence[Part], folder: str) -> Links:
    """Follow links to their end after the rounds that workers share."""
    for number in range(ROUNDS, MAX_ROUNDS):
        written = [one for part in parts for one in follow_links(part, links, folder, number)]
        links = join_round(written, links)
    return links


def write_clusters(part: Part, links: Links, folder: str, units: Sequence[UnitSize]) -> str:
    """Write CLUSTER of the texts whose clusters' first ones are in a part; return the path."""
    path, clusters = storage.join_path(folder, f"{part[0]:03d}.clusters"), BucketedRows(CLUSTER)
    dumps = 1 + max((unit.dump for unit in units), default=0)
    with buckets.open_part(part, links.by_parent, LINK, "parent") as read:
        for bucket in buckets.list_buckets_of(part):
            found = [np.unique(rows["parent"]) for rows in read(bucket)]
            roots = np.unique(np.concatenate([np.empty(0, np.uint64), *found]))
            sizes = np.zeros((len(roots), dumps + 1), np.int64)  # the last is EARLIER_DUMP's
            for rows in read(bucket):
                places = np.searchsorted(roots, rows["parent"]), rows["dump"]
                np.add.at(sizes, places, rows["reviews"])
            for rows in read(bucket):
                places = np.searchsorted(roots, rows["parent"]), rows["dump"]
                entries = np.empty(len(rows), CLUSTER)
                entries["text"], entries["root"] = rows["text"], rows["parent"]
                entries["size"] = sizes[places]
                clusters.add_rows(entries)
    return clusters.save_with_starts(path)


def find_members(
    part: Part, folder: str, units: list[UnitSize], clusters: BucketedFiles
) -> Iterator[UnitRows]:
    """Yield by unit MEMBER of the reviews that are not alone in their cluster, from the `.hashes`
    of all units in a folder; of a text only those of its first dump.
    """
    dumps, members = np.array([unit.dump for unit in units]), [list[bytes]() for _ in units]
    files = buckets.list_unit_files(folder, units, "hashes")
    with (
        buckets.open_part(part, files, PACKED_ROW) as read_hashes,
        buckets.open_part(part, clusters, CLUSTER) as read_clusters,
    ):
        for bucket in buckets.list_buckets_of(part):
            parts, known = list(read_hashes(bucket)), read_rows(read_clusters(bucket), CLUSTER)
            unit = np.repeat(np.arange(len(units)), [len(rows) for rows in parts])
            rows = np.concatenate([np.empty(0, PACKED_ROW), *parts])
            order = np.lexsort((dumps[unit], rows["high"].astype(np.uint64)))
            rows, unit = rows[order], unit[order]
            texts, of_dump = rows["high"].astype(np.uint64), dumps[unit]
            is_first = mark_firsts(texts)
            which = np.cumsum(is_first) - 1
            is_own = of_dump == of_dump[is_first][which]
            found = np.empty(len(rows), MEMBER)
            found["row"], found["cluster"] = rows["row"], texts
            found["size"] = np.bincount(which[is_own], minlength=len(rows))[which]
            places, is_known = find_texts(known, texts)
            found["cluster"][is_known] = known["root"][places]
            found["size"][is_known] = known["size"][places]
            found["is_copy"] = found["cluster"] != texts
            has_others = is_own & (found["is_copy"] | (found["size"] > 1))
            for number, of_unit in group_by_unit(unit[has_others], found[has_others]):
                members[number].append(of_unit.tobytes())
    for one, packed in zip(units, members, strict=True):
        if packed:
            yield one.unit, b"".join(packed)


def read_rows(files: Iterable[np.ndarray], kind: np.dtype) -> np.ndarray:
    """Return the rows of a bucket in all files, sorted by text."""
    rows = np.concatenate([np.empty(0, kind), *files])
    return rows[np.argsort(rows["text"], kind="stable")]


def find_texts(known: np.ndarray, texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of texts in what `read_rows` returned, of those that are there, and which
    are.
    """
    places = np.searchsorted(known["text"], texts)
    is_known = places < len(known)
    is_known[is_known] = known["text"][places[is_known]] == texts[is_known]
    return places[is_known], is_known


def unpack_members(packed: Iterable[bytes]) -> np.ndarray:
    """Return the MEMBER of a unit by row."""
    members = np.frombuffer(b"".join(packed), MEMBER)
    return members[np.argsort(members["row"])]


def write_copies(members: tuple[str, Iterable[bytes]], folder: str) -> Iterator[str]:
    """Write the row numbers of the MEMBER of a unit that are not the first of their cluster; yield
    the unit's name if there are any.
    """
    unit, packed = members
    found = unpack_members(packed)
    copies = found["row"][found["is_copy"]].astype(ROW_NUMBER)
    if len(copies):
        storage.write_bytes(storage.join_path(folder, f"{unit}.copies"), copies.tobytes())
        yield unit
