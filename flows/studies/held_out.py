"""What the encoders of a study have seen, by the files that the jobs leave, and which test texts
were kept out of it.

Shards say of which corpus they are and which evaluation files were withheld (shards.json), a
pre-training on which shards it was made (config.json). Where these say nothing, nothing is known.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from beam_jobs.core.files import hash_file
from flows.configuration.study_file import Arm, find_teacher, is_without_folder


def is_data_known(arm: Arm, arms: Mapping[str, Arm]) -> bool:
    """Return whether it is known what the arm's encoder, and those of its teachers, were trained
    on.
    """
    return all(_is_known(one) for one in _list_teachers(arm, arms))


def list_seen_shards(arm: Arm, arms: Mapping[str, Arm]) -> frozenset[str]:
    """Return the folders of shards that the arm's encoder, and those of its teachers, were
    pre-trained on.
    """
    return frozenset(shards for one in _list_teachers(arm, arms) for shards in _list_shards(one))


def is_held_out(data: str, shards: Iterable[str]) -> bool:
    """Return whether the test texts of a task were kept out of every one of these folders of
    shards.

    `data` of a corpus: the shards are of its pretrain split, from which near copies of the others'
    texts were withheld, or its test reviews were withheld. Other `data`: each of its files was
    withheld.
    """
    return all(_is_withheld(Path(data), Path(folder)) for folder in shards)


def may_repeat_tests(data: str, shards: Iterable[str]) -> bool:
    """Return whether one of these folders of shards is of the corpus `data`, which was made without
    withholding near copies of its own test reviews.
    """
    corpus = Path(data)
    return (
        (corpus / "corpus.json").is_file()
        and not _withholds_own(corpus)
        and any(_is_made_of(corpus, _read_lineage(Path(folder))) for folder in shards)
    )


def _list_teachers(arm: Arm, arms: Mapping[str, Arm]) -> Iterator[Arm]:
    yield arm
    if find_teacher(arm):
        yield from _list_teachers(arms[find_teacher(arm)], arms)


def _is_known(arm: Arm) -> bool:
    if arm.training_data:
        return arm.training_data == "known"
    if arm.teacher and not find_teacher(arm):
        return False
    return is_without_folder(arm.encoder) or bool(_list_shards(arm))


def _list_shards(arm: Arm) -> list[str]:
    if arm.pretraining:
        own = arm.pretraining
        return [own.shards, *([own.replay] if own.replay else [])]
    return [] if is_without_folder(arm.encoder) else list_encoder_shards(Path(arm.encoder))


def list_encoder_shards(encoder: Path) -> list[str]:
    """Return the shards of a folder that model.pretrain exported; none where it is another, or was
    begun from other weights.
    """
    config, result = encoder.parent / "config.json", encoder.parent / "result.json"
    if not config.is_file() or not result.is_file():
        return []
    told = json.loads(config.read_text())
    if "shards" not in told or told.get("start_from") != "":
        return []
    return [told["shards"], *told.get("replay", [])]


def _is_withheld(data: Path, shards: Path) -> bool:
    made_of = _read_lineage(shards)
    if (data / "corpus.json").is_file():
        return _is_made_of(data, made_of, "withheld_corpus") or (
            _is_made_of(data, made_of) and _withholds_own(data)
        )
    files = (
        [data]
        if data.is_file()
        else [p for p in data.rglob("*") if p.is_file() and not p.name.startswith(".")]
    )
    withheld = {named.rpartition(" ")[2] for named in made_of.get("withheld", [])}
    return bool(files) and all(_hash_file_once(file)[:16] in withheld for file in files)


def _is_made_of(corpus: Path, made_of: Mapping[str, Any], role: str = "corpus") -> bool:
    return _hash_file_once(corpus / "corpus.json") == made_of.get(role)


def _withholds_own(corpus: Path) -> bool:
    """Return whether a corpus says that near copies of its dev and test reviews were withheld from
    its pretrain split; one that was made before that could be chosen does not.
    """
    told = json.loads((corpus / "corpus.json").read_text())
    return bool(told.get("agreed", {}).get("withhold_own"))


def _read_lineage(shards: Path) -> Mapping[str, Any]:
    file = shards / "shards.json"
    told = json.loads(file.read_text()) if file.is_file() else {}
    return told.get("made_of", {}) if told.get("split", "pretrain") == "pretrain" else {}


@cache
def _hash_file_once(file: Path) -> str:
    """Return the hash of a file, computed once: evaluation sets may be large, and every arm asks
    for the same ones.
    """
    return hash_file(file)
