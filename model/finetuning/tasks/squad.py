"""Read SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018) in the official JSON form."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from amazon_electra.beam_jobs.core.errors import refuse, require
from amazon_electra.model.finetuning.examples import Example, make_span_task
from amazon_electra.model.finetuning.files import open_text, parse_json_text
from amazon_electra.model.finetuning.splits import SplitReader, get_passage, plan_splits


def read_squad_questions(path: Path) -> Iterator[Example]:
    """Yield one example a question; all its published answers count, the first is trained on."""
    with open_text(path) as file:
        text = file.read()
    kinds = KeyError, TypeError, ValueError, AttributeError
    with refuse(*kinds, message=f"{path}: not SQuAD's official form ({{}})"):
        articles = parse_json_text(text)["data"]
        for paragraph in (one for article in articles for one in article["paragraphs"]):
            for qa in paragraph["qas"]:
                found = [(a["text"], int(a["answer_start"])) for a in qa["answers"] if a["text"]]
                question, passage = qa["question"].strip(), paragraph["context"]
                yield Example(qa["id"], question, passage, answers=tuple(found))


def read_answered_questions(path: Path) -> Iterator[Example]:
    """Yield the questions of SQuAD 1.1, each of which has an answer."""
    for example in read_squad_questions(path):
        require(example.answers, f"{path}: question {example.id} has no answer: use `task squad2`")
        yield example


TASKS = (
    make_span_task(
        name="squad1",
        read=SplitReader(
            read_answered_questions,
            partial(plan_splits, leave_out=("*v2*", "*2.0*")),
            key=get_passage,
        ),
        source="SQuAD 1.1: train-v1.1.json, dev-v1.1.json",
        always_answered=True,
    ),
    make_span_task(
        name="squad2",
        read=SplitReader(
            read_squad_questions, partial(plan_splits, leave_out=("*v1*", "*1.1*")), key=get_passage
        ),
        source="SQuAD 2.0: train-v2.0.json, dev-v2.0.json; some questions have no answer",
    ),
)
