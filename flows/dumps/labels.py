"""Whether the tasks of a run can have examples: decided by the first records of the dump, and by
the corpus's counts, before anything is trained.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial

from beam_jobs.core import storage
from beam_jobs.core.errors import UserError
from beam_jobs.reading import fields
from flows.configuration.form import Dump
from flows.dumps.preview import Preview, list_files, read_preview
from flows.runner.stage_runner import Plan, StageMaker
from flows.stages.dump import build_dump_stage
from flows.store.store import Stage, Store
from model.finetuning.examples import SPLITS, Split
from model.finetuning.tasks.corpus import CORPUS_SPLITS, POLARITY, STARS

CLASSES = {"polarity": POLARITY, "stars": STARS}
"""Stars → class of each task that has its examples from a corpus."""
USES: dict[Split, str] = {"train": "train on", "dev": "choose by (dev)", "test": "test on"}
SHOWN_VALUES = 3


def check_dump(tasks: Sequence[str], chosen: Dump, dump: Stage, make: StageMaker) -> None:
    """Raise UserError where the dump's first records tell that a task can have no example."""
    wanted = [task for task in dict.fromkeys(tasks) if task in CLASSES]
    if wanted:
        check = partial(_check_files, wanted, chosen, dump)
        is_far = any(storage.is_remote(path) for path in chosen.paths)
        make.call("labels", check) if is_far else check()


def check_paths(tasks: Sequence[str], dump: Dump, store: Store) -> None:
    """Raise UserError where a path of the dump is wrong, or a task can have no example."""
    check_dump(tasks, dump, build_dump_stage(dump, store), Plan(store))


def _check_files(tasks: Sequence[str], chosen: Dump, dump: Stage) -> None:
    mistakes = []
    for file in list_files(chosen, dump):
        if not (mistake := find_mistake(tasks, read_preview(file))):
            return
        mistakes.append(f"{file.name}: {mistake}")
    if mistakes:
        others = f" (and {len(mistakes) - 1} more files like it)" if len(mistakes) > 1 else ""
        raise UserError(mistakes[0] + others)


def find_mistake(tasks: Sequence[str], preview: Preview) -> str:
    """Return why a file has no example for one of the tasks, or nothing."""
    layout = preview.file.layout
    if layout.name == "fasttext" and layout.labels == "polarity" and "stars" in tasks:
        return (
            "its labels say 1–2 or 4–5 stars, not which, so the task stars has no example: leave "
            "it out with --set finetuning.tasks=polarity"
        )
    if not preview.reviews or any(review.stars for review in preview.reviews):
        return ""
    names = " and ".join(tasks)
    column = dict(layout.mapping).get("stars")
    if column is None:
        there = ", ".join(preview.columns)
        return (
            f"no stars, so there is no example for {names}: its columns are {there}; {fields.HINT}"
        )
    values = dict.fromkeys(record[column] for record in preview.records if record.get(column))
    if not values:
        return ""  # they may come later; the corpus counts them
    shown = ", ".join(repr(value)[:40] for value in list(values)[:SHOWN_VALUES])
    return (
        f"no stars, so there is no example for {names}: its column {column} has {shown}, not 1 to "
        f"5; its columns are {', '.join(preview.columns)}; {fields.HINT}"
    )


def check_corpus(tasks: Sequence[str], corpus: Stage, store: Store) -> None:
    """Raise UserError where the corpus, if it is made, has no example for a task in a split."""
    made = store.manifest(corpus)
    counts: dict[str, int] = made["result"].get("stars", {}) if made else {}
    for task in tasks if counts else ():
        if task not in CLASSES:
            continue
        for split in SPLITS:
            examples: Counter[int] = Counter()
            for stars, label in CLASSES[task].items():
                examples[label] += sum(counts.get(f"{s}.{stars}", 0) for s in CORPUS_SPLITS[split])
            there = [label for label, n in examples.items() if n]
            if not there or (split == "train" and len(there) < 2):
                raise UserError(
                    f"the corpus has {'examples of one class' if there else 'no example'} for "
                    f"{task} to {USES[split]}; its reviews by split and stars: "
                    f"{format_counts(counts)}; take a larger dump, larger shares "
                    f"(--set corpus.split=…), or {fields.HINT}"
                )


def format_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in counts.items())
