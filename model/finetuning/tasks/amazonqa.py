"""AmazonQA (Gupta et al. 2019, arXiv 1908.04364): questions about products, review snippets,
answers, answerability.

The answers are written by people, not taken from the reviews. The authors make extractive ones: of
all runs of up to nine words of the snippets the five whose BLEU-2 against the written answers is
highest (find_answer_spans in src/lang_models/convert_squad.py of amazonqa/amazonqa, there from two
words on and with case; src/prepro's later form takes runs of 10 and 20 words). The best one is
trained on, each of the five counts as right. Files are JSON lines, {train,val,test}-qar.jsonl, 1.5
GB; a line is read at a time, and spans are looked for only in the examples that are sampled.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.model.finetuning.examples import Example, Task, make_span_task
from amazon_electra.model.finetuning.files import get_column, open_text, parse_json_object
from amazon_electra.model.finetuning.splits import SplitReader, plan_splits

MAX_SPAN = 9
"""Words of a run at most."""
SPANS = 5
"""Spans kept per question (the authors' max_num_spans)."""


def read_amazonqa_questions(path: Path) -> Iterator[Example]:
    """Yield the questions, labelled by whether they can be answered, with their answers as written,
    at no place (-1).
    """
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            row = parse_json_object(line, path, number)
            question = str(get_column(row, "questionText", path, number))
            snippets = [
                " ".join(str(s).split()) for s in _read_list(row, "review_snippets", path, number)
            ]
            written = [
                a.get("answerText")
                for a in _read_list(row, "answers", path, number)
                if isinstance(a, dict)
            ]
            answers = tuple((str(text), -1) for text in written if text)
            name = str(row.get("qid", f"{path.name}:{number}"))
            yield Example(
                name,
                question,
                " ".join(filter(None, snippets)),
                label=int(bool(row.get("is_answerable"))),
                answers=answers,
                product=str(row.get("asin", "")),
            )


def _read_list(row: dict[str, Any], name: str, path: Path, number: int) -> list[Any]:
    """Return a field that is a list, empty where it is null; snippets must be there."""
    if name != "answers" and name not in row:
        get_column(row, name, path, number)  # raises
    found = row.get(name)
    if found is not None and not isinstance(found, list):
        raise UserError(
            f"{path}, line {number}: {name} is a {type(found).__name__}, must be a list"
        )
    return found or []


_make_reader = partial(
    SplitReader,
    read_amazonqa_questions,
    partial(plan_splits, leave_out=("*squad*",)),
    key=attrgetter("product"),  # products stay on one side where the files are not split
    key_is_input=False,
)


def _attach_spans(example: Example) -> Example:
    """Return the example; an answerable question gets the best spans of its snippets."""
    written = [text for text, _ in example.answers] if example.label else []
    return replace(example, label=None, answers=tuple(find_best_spans(str(example.pair), written)))


def find_best_spans(passage: str, answers: Sequence[str]) -> list[tuple[str, int]]:
    """Return the runs of words with the highest BLEU-2 against the answers and where they start,
    the best first.

    Of equal ones the shorter, then the earlier comes first; a run that shares no word is left out.
    Scores are computed from the highest upper bound down (each n-gram that occurs in an answer
    counted, however often), until no other can be among the best.
    """
    words = passage.split(" ")
    folded = [w.lower() for w in words]
    references = [[w.lower() for w in answer.split()] for answer in answers if answer.split()]
    bounds = _bound_scores(folded, references) if references else np.empty((0, 0))
    lengths, places = np.nonzero(bounds)
    order = np.argsort(-bounds[lengths, places], kind="stable")
    best: list[tuple[float, int, int]] = []
    for length, i in zip((lengths[order] + 1).tolist(), places[order].tolist(), strict=True):
        if len(best) == SPANS and bounds[length - 1, i] < -best[-1][0]:
            break
        best = sorted([*best, (-compute_bleu2(folded[i : i + length], references), length, i)])[
            :SPANS
        ]
    starts = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
    return [(passage[starts[i] : starts[i + length] - 1], starts[i]) for _, length, i in best]


def _bound_scores(words: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """Return upper bounds of the BLEU-2 of each run of words [length - 1, first word]."""
    uni, bi = (
        {gram for r in references for gram in zip(*(r[k:] for k in range(n)), strict=False)}
        for n in (1, 2)
    )
    of_uni = np.cumsum([0, *((word,) in uni for word in words)])
    of_bi = np.cumsum([0, *(pair in bi for pair in itertools.pairwise(words))])
    bounds = np.zeros((MAX_SPAN, len(words)))
    for length in range(1, min(MAX_SPAN, len(words)) + 1):
        one, two = (
            of_uni[length:] - of_uni[:-length],
            of_bi[length - 1 :] - of_bi[: len(of_bi) - length + 1],
        )
        bounds[length - 1, : len(one)] = np.where(
            one > 0, _score_matches(length, (one, two), references) * (1 + 1e-9), 0
        )
    return bounds


def compute_bleu2(candidate: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Return the geometric mean of clipped 1- and 2-gram precision times the brevity penalty
    (Papineni et al. 2002).

    As in the COCO scorer the authors use, precisions are (matches + 1e-15) / (n-grams + 1e-9) and
    the penalty is against the reference of nearest length.
    """
    matches = []
    for n in (1, 2):
        grams = Counter(zip(*(candidate[i:] for i in range(n)), strict=False))
        allowed: Counter = Counter()
        for reference in references:
            allowed |= Counter(zip(*(reference[i:] for i in range(n)), strict=False))
        matches.append(sum((grams & allowed).values()))
    return float(_score_matches(len(candidate), matches, references))


def _score_matches(length: int, matches: Sequence[Any], references: Sequence[Sequence[str]]) -> Any:
    """Return the BLEU-2 of `length` words whose 1- and 2-grams match so often (also arrays)."""
    precisions = [(m + 1e-15) / (length - n + 1e-9) for n, m in enumerate(matches)]
    nearest = min((abs(len(r) - length), len(r)) for r in references)[1]
    ratio = (length + 1e-15) / (nearest + 1e-9)
    return np.sqrt(precisions[0] * precisions[1]) * (math.exp(1 - 1 / ratio) if ratio < 1 else 1.0)


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
