"""GLUE (Wang et al. 2019, arXiv 1804.07461): nine tasks, their official metrics, and their submission files.

The official test labels are not published. The official dev set is therefore our test set and dev is cut from train:
nothing is chosen on what is reported. `submission` reads the official test file, without labels.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from model.command import UserMistake
from model.finetuning.examples import Example, LeftOut, Split, Task
from model.finetuning.tasks.files import class_of, column, is_short, number_of, open_text, table_rows
from model.finetuning.tasks.splits import Part, parts, reader

ENTAILMENT = ("entailment", "not_entailment")
NUMBERS = ("0", "1")


@dataclass(frozen=True)
class Spec:
    """Where a GLUE task keeps what."""

    folder: str
    text: str
    pair: str | None
    label: str
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    file: str
    """Of the submission, without .tsv."""
    leave_out: tuple[str, ...] = ()
    """Files of the folder that are another task's."""
    header: tuple[str, ...] = ()
    """Columns of files that have no header line."""
    trained_as: tuple[str, ...] = ()
    """Tasks of the same train.tsv."""


STSB_HEADER = (
    "index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2", "score",
)  # fmt: skip

SPECS: Mapping[str, Spec] = {
    "cola": Spec(
        "CoLA", "sentence", None, "label", NUMBERS, ("matthews", "accuracy", "loss"), "CoLA",
        header=("source", "label", "star", "sentence"),
    ),
    "sst-2": Spec("SST-2", "sentence", None, "label", NUMBERS, ("accuracy", "macro_f1", "ece", "loss"), "SST-2"),
    "mrpc": Spec(
        "MRPC", "#1 String", "#2 String", "Quality", NUMBERS, ("f1", "accuracy", "loss"), "MRPC",
        leave_out=("msr_paraphrase*", "*_ids*"),
    ),
    "sts-b": Spec(
        "STS-B", "sentence1", "sentence2", "score", (), ("pearson", "spearman", "mse"), "STS-B", header=STSB_HEADER
    ),
    "qqp": Spec("QQP", "question1", "question2", "is_duplicate", NUMBERS, ("f1", "accuracy", "loss"), "QQP"),
    "mnli": Spec(
        "MNLI", "sentence1", "sentence2", "gold_label", ("contradiction", "entailment", "neutral"),
        ("accuracy", "macro_f1", "loss"), "MNLI-m", leave_out=("*mismatched*",),
        trained_as=("mnli-mm",),
    ),
    "mnli-mm": Spec(
        "MNLI", "sentence1", "sentence2", "gold_label", ("contradiction", "entailment", "neutral"),
        ("accuracy", "macro_f1", "loss"), "MNLI-mm", leave_out=("*_matched*",),
        trained_as=("mnli",),
    ),
    "qnli": Spec("QNLI", "question", "sentence", "label", ENTAILMENT, ("accuracy", "loss"), "QNLI"),
    "rte": Spec("RTE", "sentence1", "sentence2", "label", ENTAILMENT, ("accuracy", "loss"), "RTE"),
    "wnli": Spec("WNLI", "sentence1", "sentence2", "label", NUMBERS, ("accuracy", "loss"), "WNLI"),
}  # fmt: skip


def rows(spec: Spec, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """CoLA's files have no header line, STS-B's sometimes have none."""
    with open_text(path) as file:
        first = file.readline().rstrip("\n").split("\t")
    if spec.text in first:
        yield from table_rows(path)
        return
    if len(first) != len(spec.header):
        raise UserMistake(f"{path}, line 1: no column {spec.text!r}; its columns are {', '.join(first)}")
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            cells = line.rstrip("\n").split("\t")
            yield number, dict(itertools.zip_longest(spec.header, cells[: len(spec.header)]))


def examples(spec: Spec, path: Path, labelled: bool = True) -> Iterator[Example | LeftOut]:
    classes = {label: i for i, label in enumerate(spec.labels)}
    wanted = [spec.text, *([spec.pair] if spec.pair else []), *([spec.label] if labelled else [])]
    for number, row in rows(spec, path):
        if is_short(row, wanted):
            yield LeftOut("line too short")
            continue
        label: int | float | None = None
        if labelled:
            written = column(row, spec.label, path, number)
            if written == "-":
                continue
            label = class_of(written, classes, path, number) if classes else number_of(written, path, number)
        pair = column(row, spec.pair, path, number) if spec.pair else None
        name = str(row.get("index") or row.get("id") or number - 1)
        yield Example(f"{path.stem}:{name}", column(row, spec.text, path, number), pair, label)


def submission_examples(name: str, data: Path) -> dict[str, list[Example]]:
    """The official test file, in its own order, by the name of what is submitted; without .tsv.

    A model of MNLI answers the diagnostic set too (AX), where that lies beside: the official site wants it.
    """
    spec, folder = SPECS[name], _folder(data, SPECS[name])
    wanted = "*test_mismatched*" if name == "mnli-mm" else "*test_matched*" if name == "mnli" else "*test*"
    files = sorted(folder.glob(wanted + ".tsv*"))
    if not files:
        raise UserMistake(f"{data}: no {wanted}.tsv; the official test file of {spec.folder} is needed")
    found = {spec.file: files[0]}
    if name == "mnli" and (diagnostic := sorted(folder.parent.glob("diagnostic/diagnostic.tsv*"))):
        found["AX"] = diagnostic[0]
    return {
        file: [_submitted(example, path, place) for place, example in enumerate(examples(spec, path, False), 1)]
        for file, path in found.items()
    }


def _submitted(example: Example | LeftOut, path: Path, place: int) -> Example:
    """The official site wants an answer to every line."""
    if isinstance(example, LeftOut):
        raise UserMistake(f"{path}, example {place}: {example.reason}; fetch the file again")
    return example


def submission_lines(name: str, predictions: list[Any]) -> list[str]:
    """As gluebenchmark.com takes them: index and label, scores with three decimals within 0 to 5."""
    spec = SPECS[name]
    said = (
        [spec.labels[int(p)] for p in predictions] if spec.labels else [f"{min(5, max(0, p)):.3f}" for p in predictions]
    )
    return ["index\tprediction", *(f"{i}\t{label}" for i, label in enumerate(said))]


def _folder(data: Path, spec: Spec) -> Path:
    """The task's own folder, or the one that holds all of GLUE."""
    if (data / spec.folder).is_dir():
        return data / spec.folder
    if data.is_dir() and not any(path.is_file() for path in data.iterdir()):
        raise UserMistake(
            f"{data}: no folder {spec.folder} and no file in it; --data names GLUE's folder or the task's"
        )
    return data


def _task(name: str, spec: Spec) -> Task:
    def split_parts(data: Path) -> Mapping[Split, Part]:
        return parts(_folder(data, spec), spec.leave_out, labelled_test=False)

    return Task(
        name=name,
        shape="classification" if spec.labels else "regression",
        labels=spec.labels,
        metrics=spec.metrics,
        read=reader(partial(examples, spec), split_parts),
        source=f"GLUE: {spec.folder}/train.tsv, dev.tsv (test.tsv for a submission)",
        trained_as=spec.trained_as,
    )


TASKS = tuple(_task(name, spec) for name, spec in SPECS.items())
