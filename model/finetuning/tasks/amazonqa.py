"""AmazonQA (Gupta et al. 2019, arXiv 1908.04364): questions about products, review snippets, answers, answerability.

The answers are written by people, not taken from the reviews. The authors make extractive ones: among all runs of one
to nine words of the snippets the one whose BLEU-2 against the written answers is highest (src/convert_squad.py of
amazonqa/amazonqa). Files are JSON lines, {train,val,test}-qar.jsonl, 1.5 GB; a line is read at a time, and the search
for spans is done only for the examples that are sampled.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from model.command import UserMistake
from model.finetuning.examples import Example, Sampling, Split, Task, sample, split_by_text
from model.finetuning.tasks.files import SHARES, all_files, open_text, split_files

LONGEST_SPAN = 9
"""Words (the authors' range(1, 10))."""


def read_span(data: Path, split: Split, sampling: Sampling) -> list[Example]:
    """Answerable questions get the best span of their snippets, others have no answer."""
    return [_with_span(example) for example in sample(_lines(data, split), sampling)]


def read_answerable(data: Path, split: Split, sampling: Sampling) -> list[Example]:
    return sample((replace(e, label=int(e.slices["answerable"] == "yes")) for e in _lines(data, split)), sampling)


def _lines(data: Path, split: Split) -> Iterator[Example]:
    """Products (asin) stay on one side where the files are not split."""
    files = split_files(data)[split]
    for path in files or all_files(data):
        for example in questions(path):
            if files or split_by_text(str(example.slices["asin"]), SHARES) == split:
                yield example


def questions(path: Path) -> Iterator[Example]:
    """Written answers are kept as `choices` until a span is looked for."""
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            row = _parse(line, path, number)
            snippets = [" ".join(str(s).split()) for s in row["review_snippets"]]
            answers = tuple(str(a["answerText"]) for a in row.get("answers", []) if a.get("answerText"))
            slices = {
                "asin": str(row.get("asin", "")),
                "category": str(row.get("category", "unknown")),
                "type": str(row.get("questionType", "unknown")),
                "answerable": "yes" if row.get("is_answerable") else "no",
            }
            name = str(row.get("qid", f"{path.name}:{number}"))
            yield Example(
                name, str(row["questionText"]), " ".join(filter(None, snippets)), choices=answers, slices=slices
            )


def _parse(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserMistake(f"{path}, line {number}: not JSON ({error.msg})") from error
    for name in ("questionText", "review_snippets"):
        if name not in row:
            raise UserMistake(f"{path}, line {number}: no field {name!r}; its fields are {', '.join(row)}")
    return row


def _with_span(example: Example) -> Example:
    answerable = example.slices["answerable"] == "yes"
    found = best_span(str(example.pair), example.choices) if answerable else None
    slices = {name: value for name, value in example.slices.items() if name != "asin"}
    return replace(example, answers=(found,) if found else (), choices=(), slices=slices)


def best_span(passage: str, answers: Sequence[str]) -> tuple[str, int] | None:
    """The run of words with the highest BLEU-2 against the answers and where it starts; None if nothing is shared."""
    words = passage.split(" ")
    starts = [0]
    for word in words:
        starts.append(starts[-1] + len(word) + 1)
    references = [[w.lower() for w in answer.split()] for answer in answers if answer.split()]
    wanted = {w for reference in references for w in reference}
    folded = [w.lower() for w in words]
    best, place = 0.0, None
    for length in range(1, LONGEST_SPAN + 1):
        for i in range(len(words) - length + 1):
            if folded[i] in wanted and folded[i + length - 1] in wanted:
                score = bleu2(folded[i : i + length], references)
                if score > best:
                    best, place = score, (i, length)
    if place is None:
        return None
    i, length = place
    return passage[starts[i] : starts[i + length] - 1], starts[i]


def bleu2(candidate: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Geometric mean of clipped 1- and 2-gram precision times the brevity penalty (Papineni et al. 2002).

    As in the COCO scorer the authors use, precisions are (matches + 1e-15) / (n-grams + 1e-9) and the penalty is
    against the reference of nearest length.
    """
    product = 1.0
    for n in (1, 2):
        grams = Counter(zip(*(candidate[i:] for i in range(n)), strict=False))
        allowed: Counter = Counter()
        for reference in references:
            allowed |= Counter(zip(*(reference[i:] for i in range(n)), strict=False))
        matches = sum((grams & allowed).values())
        product *= (matches + 1e-15) / (sum(grams.values()) + 1e-9)
    nearest = min((abs(len(r) - len(candidate)), len(r)) for r in references)[1]
    ratio = (len(candidate) + 1e-15) / (nearest + 1e-9)
    return math.sqrt(product) * (math.exp(1 - 1 / ratio) if ratio < 1 else 1.0)


TASKS = (
    Task(
        name="amazonqa",
        shape="span",
        labels=(),
        metrics=("answer_f1", "exact_match", "loss"),
        read=read_span,
        source="AmazonQA: {train,val,test}-qar.jsonl; spans by BLEU-2",
        question="which words of the reviews answer a question about a product, if any do?",
    ),
    Task(
        name="amazonqa-answerable",
        shape="classification",
        labels=("not answerable", "answerable"),
        metrics=("accuracy", "macro_f1", "ece", "loss"),
        read=read_answerable,
        source="AmazonQA: {train,val,test}-qar.jsonl, is_answerable",
        question="can a question about a product be answered from its reviews?",
    ),
)
