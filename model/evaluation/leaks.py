"""What the report says of test texts in pre-training: withheld where that is shown, a warning where it is not."""

from collections.abc import Mapping, Sequence
from typing import Any

from model.evaluation.document import Block, Heading, Paragraph


def warnings(study: Mapping[str, Any], tasks: Sequence[str]) -> list[Block]:
    """Arms of whose encoder nobody can tell what it has seen, and arms that may have seen a task's test texts."""
    blocks: list[Block] = []
    for arm in study.get("arms", []):
        text = ""
        if arm.get("data_known") is False:
            text = (
                f"what the encoder of {arm['name']} was trained on is unknown; the test reviews may be in it, and its "
                "results may be too good."
            )
        elif may_have_seen := [task for task in tasks if "held_out" in arm and task not in arm["held_out"]]:
            text = (
                f"nothing shows that the test texts of {', '.join(may_have_seen)} were withheld from what "
                f"{arm['name']} was pre-trained on; its results there may be too good."
            )
        if text:
            blocks.append(Paragraph(text, "warning"))
    return blocks


def statement(study: Mapping[str, Any], tasks: Sequence[str]) -> list[Block]:
    """Of the tasks whose test texts were kept out of every pre-training; nothing where nothing was pre-trained.

    Of texts of fewer than three words beam_jobs/evaluation_texts.py withholds none, and of a text within a longer one
    only those of eight words or more are looked for.
    """
    pretrained = [arm for arm in study.get("arms", []) if "held_out" in arm]
    if not pretrained:
        return []
    shown = [task for task in tasks if all(task in arm["held_out"] for arm in pretrained)]
    of = ", ".join(arm["name"] for arm in pretrained)
    text = f"Of no task is it shown that its test texts were withheld from every pre-training of {of}."
    if shown:
        text = (
            f"No text of three words or more that is tested on in {', '.join(shown)} reaches the pre-training of {of} "
            f"as a whole text, not even as a repetition{_counted(withheld(study.get('stages') or []))}."
        )
    return [Heading("Withheld from pre-training"), Paragraph(text)]


def _counted(counts: Mapping[str, int]) -> str:
    if not counts:
        return ""
    told = ", ".join(f"{name} {n:,}" for name, n in counts.items())
    return f": {sum(counts.values()):,} texts were withheld ({told})"


def withheld(stages: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """From the corpus stage: its own dev and test sets, and what was dropped for being in another evaluation set."""
    for stage in stages:
        counts = stage.get("counts") or {}
        if "splits" in counts:
            own = {f"own {split}": int(counts["splits"].get(split, 0)) for split in ("dev", "test")}
            dropped = counts.get("dropped") or {}
            return own | {name: int(n) for name, n in dropped.items() if name.startswith("withheld")}
    return {}
