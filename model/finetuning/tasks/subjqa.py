"""SubjQA (Bjerva et al. 2020): questions on reviews, <domain>/{train,dev,test}.csv."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.model.finetuning.examples import Example, Omission, Split, make_span_task
from amazon_electra.model.finetuning.files import read_table_rows
from amazon_electra.model.finetuning.splits import (
    SplitReader,
    SplitSource,
    get_passage,
    group_by_split,
    plan_missing_splits,
    plan_splits,
)

NO_ANSWER = "ANSWERNOTFOUND"
"""The last word of every review, which annotators chose where there is no answer."""


def plan_subjqa_splits(data: Path) -> Mapping[Split, SplitSource]:
    """Plan every domain below the folder; a file alone is cut."""
    if data.is_file():
        return plan_splits(data)
    found = group_by_split(sorted(data.rglob("*.csv*")), data)
    require(any(found.values()), f"{data}: no <domain>/train.csv, dev.csv or test.csv of SubjQA")
    return plan_missing_splits(found)


def read_subjqa_questions(path: Path) -> Iterator[Example | Omission]:
    """Yield an example for each question and review; several annotators' answers are several right
    ones. Where none of them is found in the review the question is left out, not unanswerable.
    """
    held: dict[str, tuple[Example, list[tuple[str, int] | None]]] = {}
    for row in read_table_rows(path):
        name = str(row.get("q_review_id"))
        review = str(row.get("review")).removesuffix(NO_ANSWER).rstrip()
        if name not in held:
            held[name] = Example(name, str(row.get("question")), review), []
        answer, written = str(row.get("human_ans_spans")), str(row.fields.get("human_ans_indices"))
        try:
            start = int(ast.literal_eval(written)[0])
        except (ValueError, SyntaxError, TypeError, IndexError):
            row.refuse(f"human_ans_indices {written!r}")
        if answer != NO_ANSWER:
            held[name][1].append(align_answer(review, answer, start))
    for example, marked in held.values():
        answers = tuple(answer for answer in marked if answer)
        if marked and not answers:
            yield Omission("no marked answer found in its passage")
        else:
            yield replace(example, answers=answers)


def align_answer(review: str, answer: str, start: int) -> tuple[str, int] | None:
    """Return the words of the review that equal the answer but for white space, nearest to `start`,
    and their place: the published spans come from a tokenized copy (`bedding .`).
    """
    if answer.strip() and review[start : start + len(answer)] == answer:
        return answer, start
    places = [i for i, character in enumerate(review) if not character.isspace()]
    squeezed, wanted = "".join(review[i] for i in places), "".join(answer.split())
    found = [match.start() for match in re.finditer(f"(?={re.escape(wanted)})", squeezed)]
    if not (found and wanted):
        return None
    first = min(found, key=lambda i: abs(places[i] - start))
    begin, end = places[first], places[first + len(wanted) - 1] + 1
    return review[begin:end], begin


TASKS = (
    make_span_task(
        name="subjqa",
        read=SplitReader(read_subjqa_questions, plan_subjqa_splits, key=get_passage),
        source="SubjQA: <domain>/{train,dev,test}.csv, plain or gz",
        question="which words of a review answer a question about the product, if any do?",
    ),
)
