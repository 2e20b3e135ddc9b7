"""SubjQA (Bjerva et al. 2020): questions about reviews, answered by spans or not at all.

Files are <domain>/{train,dev,test}.csv.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from model.command import UserMistake
from model.finetuning.examples import Example, Sampling, Split, Task, sample
from model.finetuning.tasks.files import column, split_files, table_rows

NO_ANSWER = "ANSWERNOTFOUND"
"""Stands at the end of every review; chosen by annotators as the answer that is not there."""


def read(data: Path, split: Split, sampling: Sampling) -> list[Example]:
    """Every domain below the folder."""
    folders = [data, *sorted(p for p in data.iterdir() if p.is_dir())] if data.is_dir() else []
    files = [f for folder in folders for f in split_files(folder)[split]]
    if not files:
        raise UserMistake(f"{data}: no {split}.csv of SubjQA in it or in its folders")
    return sample((example for path in files for example in questions(path)), sampling)


def questions(path: Path) -> Iterator[Example]:
    """One example for each pair of question and review; several annotators' answers are several right answers."""
    held: dict[str, tuple[Example, list[tuple[str, int]]]] = {}
    for number, row in table_rows(path):
        name = str(column(row, "q_review_id", path, number))
        review = str(column(row, "review", path, number)).removesuffix(NO_ANSWER).rstrip()
        if name not in held:
            slices = {"domain": str(row.get("domain") or path.parent.name)}
            held[name] = (Example(name, str(column(row, "question", path, number)), review, slices=slices), [])
        answer = str(column(row, "human_ans_spans", path, number))
        start = _start(row.get("human_ans_indices"), path, number)
        if answer != NO_ANSWER and review[start : start + len(answer)] == answer:
            held[name][1].append((answer, start))
    for example, answers in held.values():
        yield Example(example.id, example.text, example.pair, answers=tuple(answers), slices=example.slices)


def _start(written: object, path: Path, line: int) -> int:
    try:
        return int(ast.literal_eval(str(written))[0])
    except (ValueError, SyntaxError, TypeError, IndexError):
        raise UserMistake(f"{path}, line {line}: human_ans_indices {written!r} is not `(start, end)`") from None


TASKS = (
    Task(
        name="subjqa",
        shape="span",
        labels=(),
        metrics=("answer_f1", "exact_match", "loss"),
        read=read,
        source="SubjQA: <domain>/{train,dev,test}.csv, plain or gz",
        question="which words of a review answer a question about the product, if any do?",
    ),
)
