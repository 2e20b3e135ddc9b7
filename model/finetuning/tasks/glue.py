"""GLUE (arXiv 1804.07461): its official dev set is our test set, since test has no labels."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.model.finetuning.examples import Example, Omission, Split, Task
from amazon_electra.model.finetuning.files import Row, open_text, read_table_rows
from amazon_electra.model.finetuning.splits import SplitReader, SplitSource, plan_splits

ENTAILMENT = ("entailment", "not_entailment")
NUMBERS = ("0", "1")


@dataclass(frozen=True)
class GlueSpec:
    """The folder, columns and labels of a GLUE task."""

    folder: str
    text: str
    pair: str | None
    label: str
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    leave_out: tuple[str, ...] = ()
    """Files of the folder that are another task's."""
    header: tuple[str, ...] = ()
    """Columns of files that have no header line."""
    trained_as: tuple[str, ...] = ()
    """Tasks with the same train.tsv."""
    is_ordered: bool = True
    """False: trained on both orders of each pair (google: double_unordered of MRPC and STS-B)."""


STSB_HEADER = (
    "index", "genre", "filename", "year", "old_index", "source1", "source2",
    "sentence1", "sentence2", "score",
)  # fmt: skip
MNLI = ("contradiction", "entailment", "neutral")
ACCURACY = ("accuracy", "loss")
FOUR = ("accuracy", "macro_f1", "ece", "loss")

SPECS: Mapping[str, GlueSpec] = {
    "cola": GlueSpec(
        "CoLA", "sentence", None, "label", NUMBERS, ("matthews", "accuracy", "loss"),
        header=("source", "label", "star", "sentence"),
    ),
    "sst-2": GlueSpec("SST-2", "sentence", None, "label", NUMBERS, FOUR),
    "mrpc": GlueSpec(
        "MRPC", "#1 String", "#2 String", "Quality", NUMBERS, ("f1", "accuracy", "loss"),
        leave_out=("msr_paraphrase*", "*_ids*"), is_ordered=False,
    ),
    "sts-b": GlueSpec(
        "STS-B", "sentence1", "sentence2", "score", (), ("pearson", "spearman", "mse"),
        header=STSB_HEADER, is_ordered=False,
    ),
    "qqp": GlueSpec(
        "QQP", "question1", "question2", "is_duplicate", NUMBERS, ("f1", "accuracy", "loss")
    ),
    "mnli": GlueSpec(
        "MNLI", "sentence1", "sentence2", "gold_label", MNLI, ("accuracy", "macro_f1", "loss"),
        leave_out=("*mismatched*",), trained_as=("mnli-mm",),
    ),
    "mnli-mm": GlueSpec(
        "MNLI", "sentence1", "sentence2", "gold_label", MNLI, ("accuracy", "macro_f1", "loss"),
        leave_out=("*_matched*",), trained_as=("mnli",),
    ),
    "qnli": GlueSpec("QNLI", "question", "sentence", "label", ENTAILMENT, ACCURACY),
    "rte": GlueSpec("RTE", "sentence1", "sentence2", "label", ENTAILMENT, ACCURACY),
    "wnli": GlueSpec("WNLI", "sentence1", "sentence2", "label", NUMBERS, ACCURACY),
}  # fmt: skip


def read_glue_rows(spec: GlueSpec, path: Path) -> Iterator[Row]:
    """Yield the rows; CoLA's files have no header line, STS-B's sometimes have none."""
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            cells = line.rstrip("\n").split("\t")
            if number == 1 and spec.text in cells:
                yield from read_table_rows(path)
                return
            is_known = number > 1 or len(cells) == len(spec.header)
            require(is_known, f"{path}, line 1: no column {spec.text!r} in {', '.join(cells)}")
            fields = dict(itertools.zip_longest(spec.header, cells[: len(spec.header)]))
            yield Row(fields, path, number)


def read_glue_examples(spec: GlueSpec, path: Path) -> Iterator[Example | Omission]:
    classes = {label: i for i, label in enumerate(spec.labels)}
    wanted = [spec.text, *([spec.pair] if spec.pair else []), spec.label]
    for row in read_glue_rows(spec, path):
        if row.is_short(wanted):
            yield Omission("line too short")
        elif row.get(spec.label) != "-":
            name = row.fields.get("index") or row.fields.get("id") or row.line - 1
            yield Example(
                f"{path.stem}:{name}",
                row.get(spec.text),
                row.get(spec.pair) if spec.pair else None,
                row.find_class(spec.label, classes) if classes else row.read_number(spec.label),
            )


def _find_folder(data: Path, spec: GlueSpec) -> Path:
    """Return the task's own folder, also where `data` holds all of GLUE."""
    if (data / spec.folder).is_dir():
        return data / spec.folder
    has_files = not data.is_dir() or any(path.is_file() for path in data.iterdir())
    require(has_files, f"no folder {spec.folder} in it, and no file", "data", data)
    return data


def _make_task(name: str, spec: GlueSpec) -> Task:
    def plan_glue_splits(data: Path) -> Mapping[Split, SplitSource]:
        return plan_splits(_find_folder(data, spec), spec.leave_out, labelled_test=False)

    read = partial(read_glue_examples, spec)
    return Task(
        name=name,
        shape="classification" if spec.labels else "regression",
        labels=spec.labels,
        metrics=spec.metrics,
        read=SplitReader(read, plan_glue_splits, is_ordered=spec.is_ordered),
        source=f"GLUE: {spec.folder}/train.tsv, dev.tsv",
        trained_as=spec.trained_as,
    )


TASKS = tuple(_make_task(name, spec) for name, spec in SPECS.items())
