"""GLUE (Wang et al. 2019, arXiv 1804.07461): nine tasks, their official metrics, and their submission files.

The official test labels are not published. The official dev set is therefore our test set and dev is cut from train:
nothing is chosen on what is reported. `submission` reads the official test file, without labels.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.command import UserMistake
from model.finetuning.examples import Example, Split, Task
from model.finetuning.tasks.files import PATTERNS, class_of, column, open_text, reader, table_rows

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
    dev: tuple[str, ...] = ("*dev*",)
    header: tuple[str, ...] = ()
    """Columns of files that have no header line."""


STSB_HEADER = (
    "index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2", "score",
)  # fmt: skip

SPECS: Mapping[str, Spec] = {
    "cola": Spec(
        "CoLA", "sentence", None, "label", NUMBERS, ("matthews", "accuracy", "loss"), "CoLA",
        header=("source", "label", "star", "sentence"),
    ),
    "sst-2": Spec("SST-2", "sentence", None, "label", NUMBERS, ("accuracy", "macro_f1", "ece", "loss"), "SST-2"),
    "mrpc": Spec("MRPC", "#1 String", "#2 String", "Quality", NUMBERS, ("f1", "accuracy", "loss"), "MRPC"),
    "sts-b": Spec(
        "STS-B", "sentence1", "sentence2", "score", (), ("pearson", "spearman", "mse"), "STS-B", header=STSB_HEADER
    ),
    "qqp": Spec("QQP", "question1", "question2", "is_duplicate", NUMBERS, ("f1", "accuracy", "loss"), "QQP"),
    "mnli": Spec(
        "MNLI", "sentence1", "sentence2", "gold_label", ("contradiction", "entailment", "neutral"),
        ("accuracy", "macro_f1", "loss"), "MNLI-m", dev=("*dev_matched*",),
    ),
    "mnli-mm": Spec(
        "MNLI", "sentence1", "sentence2", "gold_label", ("contradiction", "entailment", "neutral"),
        ("accuracy", "macro_f1", "loss"), "MNLI-mm", dev=("*dev_mismatched*",),
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
            yield number, dict(zip(spec.header, line.rstrip("\n").split("\t"), strict=False))


def examples(spec: Spec, path: Path, labelled: bool = True) -> Iterator[Example]:
    classes = {label: i for i, label in enumerate(spec.labels)}
    for number, row in rows(spec, path):
        label: int | float | None = None
        if labelled:
            written = column(row, spec.label, path, number)
            if written == "-":
                continue
            label = class_of(written, classes, path, number) if classes else _number(written, path, number)
        pair = column(row, spec.pair, path, number) if spec.pair else None
        name = str(row.get("index") or row.get("id") or number - 1)
        yield Example(f"{path.stem}:{name}", column(row, spec.text, path, number), pair, label)


def _number(written: str, path: Path, line: int) -> float:
    try:
        return float(written)
    except ValueError:
        raise UserMistake(f"{path}, line {line}: score {written!r} is not a number") from None


def submission_examples(name: str, data: Path) -> list[Example]:
    """The official test file, in its own order."""
    spec = SPECS[name]
    wanted = "*test_mismatched*" if name == "mnli-mm" else "*test_matched*" if name == "mnli" else "*test*"
    files = sorted(_folder(data, spec).glob(wanted + ".tsv*"))
    if not files:
        raise UserMistake(f"{data}: no {wanted}.tsv; the official test file of {spec.folder} is needed")
    return list(examples(spec, files[0], labelled=False))


def submission_lines(name: str, predictions: list[Any]) -> list[str]:
    """As gluebenchmark.com takes them: index and label, scores with three decimals within 0 to 5."""
    spec = SPECS[name]
    said = (
        [spec.labels[int(p)] for p in predictions] if spec.labels else [f"{min(5, max(0, p)):.3f}" for p in predictions]
    )
    return ["index\tprediction", *(f"{i}\t{label}" for i, label in enumerate(said))]


def _folder(data: Path, spec: Spec) -> Path:
    """The task's own folder, or the one that holds all of GLUE."""
    return data / spec.folder if (data / spec.folder).is_dir() else data


def _task(name: str, spec: Spec) -> Task:
    patterns: dict[Split, tuple[str, ...]] = {**PATTERNS, "dev": spec.dev}
    read = reader(lambda path: examples(spec, path), patterns, labelled_test=False)
    return Task(
        name=name,
        shape="classification" if spec.labels else "regression",
        labels=spec.labels,
        metrics=spec.metrics,
        read=lambda data, split, sampling: read(_folder(data, spec), split, sampling),
        source=f"GLUE: {spec.folder}/train.tsv, dev.tsv (test.tsv for a submission)",
    )


TASKS = tuple(_task(name, spec) for name, spec in SPECS.items())
