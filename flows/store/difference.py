"""Why two stages have different fingerprints: the fields in which they, or what they were made of,
differ.
"""

from collections.abc import Iterator

from amazon_electra.flows.store.flatten import flatten_parameters
from amazon_electra.flows.store.store import Manifest, Store

ABSENT = "–"


def find_differences(store: Store, a: Manifest, b: Manifest) -> list[str]:
    """Return a line for each field that differs, of the stage that it belongs to; a stage that
    differs only in its inputs has none. Each pair of stages is compared once.
    """
    return list(_compare(store, a, b, set()))


def _compare(store: Store, a: Manifest, b: Manifest, seen: set[tuple[str, str]]) -> Iterator[str]:
    pair = a["fingerprint"], b["fingerprint"]
    if pair[0] == pair[1] or pair in seen:
        return
    seen.add(pair)
    where = f"{a['stage']} {pair[0]} → {pair[1]}"
    if a["stage"] != b["stage"]:
        yield f"{where}: is of the stage {b['stage']}"
        return
    if a["version"] != b["version"]:
        yield f"{where}: version: {a['version']} → {b['version']}"
    before, after = flatten_parameters(a["parameters"]), flatten_parameters(b["parameters"])
    for name in sorted({*before, *after}):
        old, new = before.get(name, ABSENT), after.get(name, ABSENT)
        if old != new:
            yield f"{where}: {name}: {old} → {new}"
    for name in sorted({*a["inputs"], *b["inputs"]}):
        sources = [m["inputs"].get(name) for m in (a, b)]
        if not all(sources):
            there, verb = (sources[0], "only in the first") if sources[0] else (sources[1], "new")
            yield f"{where}: input {name}: {there['stage']} {there['fingerprint']} is {verb}"
            continue
        first, second = (store.read_manifest(s["stage"], s["fingerprint"]) for s in sources)
        if first and second:
            yield from _compare(store, first, second, seen)
        elif sources[0] != sources[1]:
            yield f"{where}: input {name}: the store no longer has one of the two"
