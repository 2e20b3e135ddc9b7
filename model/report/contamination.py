"""Says whether the test texts were withheld from pre-training, and warns where nothing shows it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from model.report.document import Block, Heading, Paragraph, join_names

COMMON_TEXTS = 100
"""Of beam_jobs/deduplication/held_out_matches.py, which this package cannot import."""


def warn_of_contamination(study: Mapping[str, Any], tasks: Sequence[str]) -> list[Block]:
    """Return a warning for each arm whose encoder may have seen a task's test texts."""
    blocks: list[Block] = [Paragraph(t, "warning") for t in _describe_origins(study)]
    for arm in study.get("arms", []):
        text = ""
        if "origin" in arm and "held_out" not in arm:
            continue
        if arm.get("data_known") is False:
            text = (
                f"what the encoder of {arm['name']} was trained on is unknown; the test reviews "
                "may be in it, and its results may be too good."
            )
        elif may_have_seen := [
            task for task in tasks if "held_out" in arm and task not in arm["held_out"]
        ]:
            named = join_names(may_have_seen)
            text = (
                f"nothing shows that the test texts of {named} were withheld "
                f"from what {arm['name']} was pre-trained on; its results there may be too good."
            )
            if arm.get("withhold_own") is False:
                text = (
                    f"near copies of the test texts of {named}, also such that differ by a "
                    f"punctuation mark alone, may be in what {arm['name']} was pre-trained on: its "
                    "corpus was made with withhold_own=false; its results there may be too good."
                )
        if text:
            blocks.append(Paragraph(text, "warning"))
    return blocks


def _describe_origins(study: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each published encoder that arms begin with: what it has seen is known to
    those who made it at most.
    """
    for fingerprint, origin in (study.get("origins") or {}).items():
        arms = [arm["name"] for arm in study["arms"] if arm.get("origin") == fingerprint]
        told = origin.get("training_data") or "unknown"
        said = "is unknown" if told == "unknown" else f"is told as “{told}”"
        yield (
            f"What {origin['name']} was trained on before {said}; nobody here can tell whether "
            f"texts that are tested on were among it: the results of {join_names(arms)} may be "
            "too good, their differences from each other less so."
        )


def describe_withheld_texts(study: Mapping[str, Any], tasks: Sequence[str]) -> list[Block]:
    """Name the tasks whose test texts were withheld from every pre-training of this study.

    beam_jobs/deduplication/evaluation_texts.py withholds no text of fewer than three words, and
    looks within longer texts only for those of eight words or more.
    """
    pretrained = [arm for arm in study.get("arms", []) if "held_out" in arm]
    if not pretrained:
        return []
    shown = [task for task in tasks if all(task in arm["held_out"] for arm in pretrained)]
    arms = join_names([arm["name"] for arm in pretrained])
    counts = _format_withheld(count_withheld_texts(study.get("stages") or []))
    text = (
        "Of no task is it shown that its test texts were withheld from every pre-training of "
        f"{arms}."
    )
    if shown:
        text = (
            f"No text of three words or more that is tested on in {join_names(shown)} reaches the "
            f"pre-training of {arms} as a whole text, not even as a repetition{counts}. "
            "Phrases of eight words, and shorter texts, that more than "
            f"{COMMON_TEXTS} dev and test reviews share are not searched for."
        )
    return [Heading("Withheld from pre-training"), Paragraph(text)]


def _format_withheld(counts: Mapping[str, int]) -> str:
    if not counts:
        return ""
    reasons = ", ".join(f"{name} {n:,}" for name, n in counts.items())
    return f": {sum(counts.values()):,} texts were withheld ({reasons})"


def count_withheld_texts(stages: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the corpus stage's counts of withheld texts by reason.

    They are its own dev and test sets, and the texts that are in another evaluation set.
    """
    for stage in stages:
        counts = stage.get("counts") or {}
        if "splits" in counts:
            own = {f"own {split}": int(counts["splits"].get(split, 0)) for split in ("dev", "test")}
            dropped = counts.get("dropped") or {}
            return own | {
                name: int(n) for name, n in dropped.items() if name.startswith("withheld")
            }
    return {}
