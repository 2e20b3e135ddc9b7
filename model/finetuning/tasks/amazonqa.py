"""AmazonQA (Gupta et al. 2019, arXiv 1908.04364): questions about products, review snippets, answers, answerability.

The answers are written by people, not taken from the reviews. The authors make extractive ones: among all runs of one
to nine words of the snippets the one whose BLEU-2 against the written answers is highest (src/convert_squad.py of
amazonqa/amazonqa). Files are JSON lines, {train,val,test}-qar.jsonl, 1.5 GB; a line is read at a time, and the search
for spans is done only for the examples that are sampled.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from model.command import UserMistake
from model.finetuning.examples import Example, Sampling, Split, Task
from model.finetuning.tasks.files import column, json_object, open_text
from model.finetuning.tasks.splits import parts, reader

LONGEST_SPAN = 9
"""Words (the authors' range(1, 10))."""


def questions(path: Path) -> Iterator[Example]:
    """The answers as they were written, at no place (-1): the span is looked for in the sample alone."""
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            row = json_object(line, path, number)
            question = str(column(row, "questionText", path, number))
            snippets = [" ".join(str(s).split()) for s in _listed(row, "review_snippets", path, number)]
            written = [a.get("answerText") for a in _listed(row, "answers", path, number) if isinstance(a, dict)]
            slices = {
                "asin": str(row.get("asin", "")),
                "category": str(row.get("category", "unknown")),
                "type": str(row.get("questionType", "unknown")),
                "answerable": "yes" if row.get("is_answerable") else "no",
            }
            answers = tuple((str(text), -1) for text in written if text)
            name = str(row.get("qid", f"{path.name}:{number}"))
            yield Example(name, question, " ".join(filter(None, snippets)), answers=answers, slices=slices)


def _listed(row: dict[str, Any], name: str, path: Path, number: int) -> list[Any]:
    """A field that is a list, or null where there is nothing; snippets must be there."""
    found = row.get("answers") if name == "answers" else row[name] if name in row else column(row, name, path, number)
    if found is not None and not isinstance(found, list):
        raise UserMistake(f"{path}, line {number}: {name} is a {type(found).__name__}, must be a list")
    return found or []


def product(example: Example) -> str:
    """Products (asin) stay on one side where the files are not split."""
    return str(example.slices["asin"])


_parts = partial(parts, leave_out=("*squad*",))
_read = reader(questions, _parts, key=product, key_is_input=False)


def read_span(data: Path, split: Split, sampling: Sampling, left_out: Counter[str]) -> list[Example]:
    """Answerable questions get the best span of their snippets, others have no answer."""
    return [_with_span(example) for example in _read(data, split, sampling, left_out)]


def answerable(path: Path) -> Iterator[Example]:
    for example in questions(path):
        yield replace(example, label=int(example.slices["answerable"] == "yes"))


def _with_span(example: Example) -> Example:
    answerable = example.slices["answerable"] == "yes"
    found = best_span(str(example.pair), [text for text, _ in example.answers]) if answerable else None
    slices = {name: value for name, value in example.slices.items() if name != "asin"}
    return replace(example, answers=(found,) if found else (), slices=slices)


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
        read=reader(answerable, _parts, key=product, key_is_input=False),
        source="AmazonQA: {train,val,test}-qar.jsonl, is_answerable",
        question="can a question about a product be answered from its reviews?",
    ),
)
