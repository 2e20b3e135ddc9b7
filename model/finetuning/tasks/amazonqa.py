"""AmazonQA (Gupta et al. 2019, arXiv 1908.04364). Extractive answers are, as in convert_squad.py,
the five runs of up to nine words with the highest BLEU-2; the best one is trained on.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from heapq import nsmallest
from itertools import accumulate, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

from amazon_electra.model.finetuning.examples import Example, Task, make_span_task
from amazon_electra.model.finetuning.files import Row, read_json_rows
from amazon_electra.model.finetuning.splits import SplitReader, plan_splits

MAX_SPAN = 9
"""Words of a run at most."""
SPANS = 5
"""Spans kept per question (the authors' max_num_spans)."""


def read_amazonqa_questions(path: Path) -> Iterator[Example]:
    """Yield the questions, labelled by whether they can be answered; answers have no place (-1)."""
    for row in read_json_rows(path):
        snippets = [" ".join(str(one).split()) for one in read_list(row, "review_snippets")]
        given = [one for one in read_list(row, "answers", []) if isinstance(one, dict)]
        written = [one.get("answerText") for one in given]
        yield Example(
            str(row.fields.get("qid", f"{path.name}:{row.line}")),
            str(row.get("questionText")),
            " ".join(filter(None, snippets)),
            label=int(bool(row.fields.get("is_answerable"))),
            answers=tuple((str(text), -1) for text in written if text),
            product=str(row.fields.get("asin", "")),
        )


def read_list(row: Row, name: str, default: Any = None) -> list[Any]:
    found = row.fields.get(name, default)
    if found is None and name not in row.fields:
        row.get(name)  # raises
    if not isinstance(found or [], list):
        row.refuse(f"{name} is no list")
    return found or []


_make_reader = partial(
    SplitReader,
    read_amazonqa_questions,
    partial(plan_splits, leave_out=("*squad*",)),
    key=attrgetter("product"),  # products stay on one side where the files are not split
    key_is_input=False,
)


def _attach_spans(example: Example) -> Example:
    written = [text for text, _ in example.answers] if example.label else []
    return replace(example, label=None, answers=tuple(find_best_spans(str(example.pair), written)))


def find_best_spans(passage: str, answers: Sequence[str]) -> list[tuple[str, int]]:
    """Return the runs of words with the highest BLEU-2, the shorter first, and their starts."""
    words, found = passage.split(" "), list[tuple[float, int, int]]()
    folded = [word.lower() for word in words]
    references = [[word.lower() for word in answer.split()] for answer in answers]
    sizes = [len(reference) for reference in references if reference]
    allowed = Counter[tuple[str, ...]]()  # of each 1- and 2-gram, the most in one reference
    for reference in references:
        allowed |= Counter([*zip(reference, strict=True), *pairwise(reference)])
    for i in range(len(folded)) if allowed else ():
        counts, matches = Counter[tuple[str, ...]](), [0, 0]
        for end in range(i + 1, min(i + MAX_SPAN, len(folded)) + 1):
            for n in (1, 2):
                if end - n >= i:
                    counts[gram := tuple(folded[end - n : end])] += 1
                    matches[n - 1] += counts[gram] <= allowed[gram]
            if matches[0]:
                found.append((-compute_bleu2(end - i, matches, sizes), end - i, i))
    starts = list(accumulate((len(word) + 1 for word in words), initial=0))
    return [
        (passage[starts[i] : starts[i + length] - 1], starts[i])
        for _, length, i in nsmallest(SPANS, found)
    ]


def compute_bleu2(length: int, matches: Sequence[int], sizes: Sequence[int]) -> float:
    """Return the geometric mean of clipped 1- and 2-gram precision times the brevity penalty
    (Papineni et al. 2002) of `length` words. As in the authors' COCO scorer, precisions are
    (matches + 1e-15) / (n-grams + 1e-9), the penalty against the reference of nearest length.
    """
    one, two = ((m + 1e-15) / (length - n + 1e-9) for n, m in enumerate(matches))
    nearest = min((abs(size - length), size) for size in sizes)[1]
    ratio = (length + 1e-15) / (nearest + 1e-9)
    return math.sqrt(one * two) * (math.exp(1 - 1 / ratio) if ratio < 1 else 1.0)


TASKS = (
    make_span_task(
        name="amazonqa",
        read=_make_reader(finish=_attach_spans),
        source="AmazonQA: {train,val,test}-qar.jsonl; the five spans of highest BLEU-2 count as "
        "right",
        question="which words of the reviews answer a question about a product, if any do?",
    ),
    Task(
        name="amazonqa-answerable",
        shape="classification",
        labels=("not answerable", "answerable"),
        metrics=("accuracy", "macro_f1", "ece", "loss"),
        read=_make_reader(),
        source="AmazonQA: {train,val,test}-qar.jsonl, is_answerable",
        question="can a question about a product be answered from its reviews?",
    ),
)
