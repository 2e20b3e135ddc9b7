"""Look at a task's files before anything is trained: can it have examples?"""

from collections import Counter
from pathlib import Path

from beam_jobs.job.errors import UserError
from model.finetuning.features.examples import SPLITS, Split, Task, explain_empty_split
from model.finetuning.reading.splits import SplitReader

READ_WHOLE = 8 << 20
"""Bytes of files that are also searched for texts on two sides, in a second or two; of larger
ones the first examples alone are read."""


def check_data(task: Task, data: Path) -> None:
    """Raise UserError where the files cannot be read, or a split has no example, or the train split
    those of one class.
    """
    if not isinstance(task.read, SplitReader):
        return  # a corpus: its counts tell
    files = {file for part in task.read.parts(data).values() for file in part.files}
    is_small = sum(file.stat().st_size for file in files) <= READ_WHOLE
    for split in SPLITS:
        _check_split(task, data, split, is_small)


def _check_split(task: Task, data: Path, split: Split, is_small: bool) -> None:
    assert isinstance(task.read, SplitReader)
    left_out: Counter[str] = Counter()
    needed = 2 if split == "train" and task.shape == "classification" and is_small else 1
    found = set()
    for example in task.read.read_examples(data, split, left_out, look_ahead=is_small):
        found.add(example.label)
        if len(found) == needed:
            return
    if not found:
        raise UserError(explain_empty_split(task, data, split, left_out))
    [label] = found
    raise UserError(
        f"{data}: all training examples of {task.name} are {task.labels[int(label or 0)]!r}; "
        "nothing can be learnt from one class"
    )
