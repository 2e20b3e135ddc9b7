"""Says whether the test texts were withheld from pre-training, and warns where nothing shows it."""

from collections.abc import Iterator, Sequence

from model.report.document import Block, Heading, Paragraph, join_names
from model.report.inputs import ReportInput, StageFacts

COMMON_TEXTS = 100
"""Of beam_jobs/deduplication/held_out.py, which this package cannot import."""


def list_warnings(study: ReportInput, tasks: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each encoder that may have seen the test texts of a task."""
    for fingerprint, origin in study.origins.items():
        arms = [arm.name for arm in study.arms if arm.origin == fingerprint]
        told = origin.get("training_data") or "unknown"
        data = "are unknown" if told == "unknown" else f"are, by its model card, “{told}”"
        yield (
            f"The texts that {origin['name']} was trained on {data}. They may include test texts, "
            f"so the results of {join_names(arms)} may be too good; their differences from each "
            "other are affected less."
        )
    for arm in study.arms:
        if arm.data_known is False:
            if not arm.origin:
                yield (
                    f"Nothing is known of the texts that the encoder of {arm.name} was trained on. "
                    "They may include test texts, so its results may be too good."
                )
            continue
        seen = [task for task in tasks if task not in (arm.held_out or [])]
        if arm.held_out is None or not seen:
            continue
        if arm.withhold_own:
            yield (
                f"Nothing shows that the test texts of {join_names(seen)} were withheld from the "
                f"pre-training of {arm.name}; its results there may be too good."
            )
        else:
            yield (
                f"The pre-training of {arm.name} may include near copies of the test texts of "
                f"{join_names(seen)}, such as those that differ by a punctuation mark, because its "
                "corpus was made with withhold_own=false; its results there may be too good."
            )


def describe_withheld_texts(study: ReportInput, tasks: Sequence[str]) -> list[Block]:
    """Name the tasks whose test texts were withheld from every pre-training of this study.

    beam_jobs/deduplication/evaluation_texts.py withholds no text of fewer than three words, and
    looks within longer texts only for those of eight words or more.
    """
    pretrained = {arm.name: arm.held_out for arm in study.arms if arm.held_out is not None}
    if not pretrained:
        return []
    shown = [task for task in tasks if all(task in tasks_of for tasks_of in pretrained.values())]
    arms = join_names(list(pretrained))
    text = (
        f"For no task is it shown that its test texts were withheld from every pre-training of "
        f"{arms}."
    )
    if shown:
        counts = count_withheld_texts(study.stages)
        reasons = ", ".join(f"{name} {n:,}" for name, n in counts.items())
        withheld = f" {sum(counts.values()):,} texts were withheld ({reasons})." if counts else ""
        text = (
            f"No test text of {join_names(shown)} with three words or more is in the pre-training "
            f"of {arms}, neither as a whole text nor as part of one.{withheld} Phrases of eight "
            f"words, and shorter texts, that more than {COMMON_TEXTS} dev and test reviews share "
            "are not searched for."
        )
    return [Heading("Withheld from pre-training"), Paragraph(text)]


def count_withheld_texts(stages: Sequence[StageFacts]) -> dict[str, int]:
    """Return the corpus stage's counts of withheld texts by reason: its own dev and test sets, and
    the texts that are in another evaluation set.
    """
    for stage in stages:
        if splits := stage.counts.get("splits"):
            dropped = stage.counts.get("dropped") or {}
            own = {f"own {name}": int(splits.get(name, 0)) for name in ("dev", "test")}
            return own | {n: int(k) for n, k in dropped.items() if n.startswith("withheld")}
    return {}
