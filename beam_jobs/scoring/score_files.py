"""The rows of a unit, each with its answers or the reason why it has none, and the totals.

A copy of the input has `TASK.predicted`, `TASK.probability` (of that answer, of a multi-label model
of each), `TASK.decision` where the model has a threshold (`decided`, or `ask` where it is less sure
than that) and `TASK.because` if wanted (the phrases with the largest weights). A table of its own
has a row for each record of its input, in order: `file`, `row` (the record's number, from 1), `id`
(its own, where it has one), `product` and `month` (where it has them), `text`, `label`, `decision`,
`expected` and `median` (of the stars that the classes stand for, by their probabilities), `p.LABEL`
for each class, `because`, `model_version`, and `reason` where there is no label; of several models
the columns from `label` to `model_version` begin with the task. `scores.json` has the counts, and
how the texts differ from those that each model was tested on (beam_jobs/core/drift.py).
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.utils.shared import Shared

from amazon_electra.beam_jobs.config import SCORING_TOTALS, ScoringConfig, ScoringPrecision
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.command import give_memory_back
from amazon_electra.beam_jobs.core.drift import Profile
from amazon_electra.beam_jobs.corpus.result import read_finished, sum_counts
from amazon_electra.beam_jobs.engine.units import add_to_counters, attempt, check_failed
from amazon_electra.beam_jobs.model_folder.classifier import Classifier, read_review
from amazon_electra.beam_jobs.reading import work_units
from amazon_electra.beam_jobs.reading.dates import read_month
from amazon_electra.beam_jobs.reading.fields import choose_text, unwrap
from amazon_electra.beam_jobs.reading.formats import find_format
from amazon_electra.beam_jobs.reading.ids import ID, format_id, is_integer, warn_of_ids
from amazon_electra.beam_jobs.reading.layout import Layout
from amazon_electra.beam_jobs.reading.lines import LIST, Reject, Tally
from amazon_electra.beam_jobs.reading.work_units import Unit
from amazon_electra.beam_jobs.scoring.classifier import load_classifier, read_profile
from amazon_electra.beam_jobs.scoring.comparison import (
    ScoredUnit,
    compare_units,
    count_labels,
    count_sample,
    make_task_reader,
    read_model,
)
from amazon_electra.beam_jobs.scoring.explanation import describe_weights, weigh_phrases
from amazon_electra.beam_jobs.scoring.outputs import (
    IS_RECORD,
    LINE,
    RECORD,
    find_copy_ending,
    write_copy,
    write_table,
)
from amazon_electra.beam_jobs.scoring.plan import ScoringPlan
from amazon_electra.beam_jobs.text.cleaning import clean_text
from amazon_electra.beam_jobs.text.preparation import TextPreparer, join_title


@dataclass
class Rows:
    """The records of a unit in their order."""

    ids: list[str | None] = field(default_factory=list)
    products: list[str | None] = field(default_factory=list)
    months: list[str | None] = field(default_factory=list)
    """Such as 2026-06, where the date shows it."""
    texts: list[str] = field(default_factory=list)
    """As the classifier reads them; empty where there is a reason."""
    reasons: list[str | None] = field(default_factory=list)  # why a record is not classified
    lines: list[int] = field(default_factory=list)  # where each begins
    are_records: list[bool] = field(default_factory=list)  # whether each could be read
    records: list[str] = field(default_factory=list)  # as JSON, where they are to be kept
    columns: dict[str, None] = field(default_factory=dict)  # of these records
    tally: Tally = field(default_factory=Tally)
    integers: int = 0
    given: list[list[str | None]] = field(default_factory=list)
    """Labels that the records have themselves, as typed, of each task."""


class ScoreUnits(beam.DoFn):
    """Scores units and writes their rows, with one set of classifiers for all threads."""

    def __init__(self, plan: ScoringPlan) -> None:
        self.plan, self.shared = plan, Shared()

    def setup(self) -> None:
        load = partial(load_classifiers, self.plan.models, self.plan.config.precision)
        self.models = self.shared.acquire(load)

    def process(self, unit: Unit) -> Iterator[str]:
        """Score a unit unless an earlier run has; yield its name."""
        work = partial(score_unit, unit, self.plan, self.models)
        for done in attempt(work, unit.name, unit.file.name, self.plan.folders.failed):
            counts = {"read": done.read, "scored": done.prepared, "bytes": done.bytes}
            add_to_counters(counts, done.dropped)
            yield unit.name
        give_memory_back()


@dataclass(frozen=True)
class Loaded:
    """Models that threads share, which a list cannot be, and the profile of each, if it has one."""

    classifiers: tuple[Classifier, ...]
    profiles: tuple[Profile | None, ...]


def load_classifiers(folders: Sequence[str], precision: ScoringPrecision) -> Loaded:
    return Loaded(
        tuple(load_classifier(folder, precision) for folder in folders),
        tuple(map(read_profile, folders)),
    )


def score_unit(unit: Unit, plan: ScoringPlan, models: Loaded) -> ScoredUnit:
    """Write the rows of a unit as Arrow, then what they are, unless an earlier run has."""
    name = storage.join_path(plan.folders.written, unit.name)
    if storage.exists(f"{name}.json"):
        return ScoredUnit(**json.loads(storage.read_bytes(f"{name}.json")))
    classifiers, config = models.classifiers, plan.config
    rows = read_rows(unit, config, [classifier.details.task for classifier in classifiers])
    count = len(rows.reasons)
    scored = [number for number, reason in enumerate(rows.reasons) if reason is None]
    columns: dict[str, pa.Array] = {}
    if config.output_format:
        columns["id"] = pa.array(rows.ids, pa.string())
        mapping = dict(unit.file.layout.mapping)
        if "item_id" in mapping:
            columns["product"] = pa.array(rows.products, pa.string())
        if "timestamp" in mapping:
            columns["month"] = pa.array(rows.months, pa.string())
        columns["text"] = pa.array([text or None for text in rows.texts], pa.string())
    else:
        columns[LINE], columns[IS_RECORD] = pa.array(rows.lines), pa.array(rows.are_records)
        if not find_copy_ending(unit.file.layout):
            columns[RECORD] = pa.array(rows.records, pa.string())
    texts = [rows.texts[number] for number in scored]
    probabilities = [classifier.score(texts) for classifier in classifiers]
    predicted: list[list[Any]] = []
    for place, (classifier, prefix) in enumerate(zip(classifiers, plan.prefixes, strict=True)):
        own = score_rows(count, scored, probabilities[place], classifier)
        predicted.append(own["label"].to_pylist())
        if config.output_format:
            own["model_version"] = pa.array([plan.versions[place]] * count, pa.string())
        else:
            own = {
                "predicted": own["label"],
                "probability": find_own(count, scored, probabilities[place], classifier),
                **({"decision": own["decision"]} if "decision" in own else {}),
            }
        if config.explain:
            because = np.full(count, None)
            answers = probabilities[place].argmax(1)
            weights = weigh_phrases(classifier, texts, answers.tolist())
            because[scored] = np.array([*map(describe_weights, weights)], object)
            own["because"] = pa.array(because, pa.string())
        columns |= {f"{prefix}{name}": column for name, column in own.items()}
    if config.output_format:
        columns["reason"] = pa.array(rows.reasons, pa.string())
    table = pa.table(columns)
    packed = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        storage.atomic_path(f"{name}.arrow") as path,
        pa.ipc.new_file(str(path), table.schema, options=packed) as writer,
    ):
        writer.write_table(table)
    labels = [
        ({}, 0)
        if classifier.config.is_multilabel
        else count_labels(given, answers, rows.texts, folder)
        for classifier, given, answers, folder in zip(
            classifiers, rows.given, predicted, plan.models, strict=True
        )
    ]
    counts = ScoredUnit(
        unit=unit.name,
        prepared=len(scored),
        file=unit.file.name,
        read=count,
        lines=rows.tally.lines,
        columns=list(rows.columns),
        dropped=dict(Counter(reason for reason in rows.reasons if reason is not None)),
        notes=dict(rows.tally.notes),
        bytes=rows.tally.bytes,
        index=unit.file.index,
        ids=count - rows.ids.count(None),
        integers=rows.integers,
        tallies=[
            count_sample(profile, texts, own)
            for profile, own in zip(models.profiles, probabilities, strict=True)
        ],
        given=[given for given, _ in labels],
        trained=[trained for _, trained in labels],
    )
    storage.write_json(f"{name}.json", asdict(counts))
    return counts


def score_rows(
    count: int, scored: Sequence[int], probabilities: np.ndarray, classifier: Classifier
) -> dict[str, pa.Array]:
    """Return the columns of a model for `count` rows: its answers to `scored`, null elsewhere."""
    labels: list[Any] = [None] * count
    for number, answer in zip(scored, classifier.answer(probabilities), strict=True):
        labels[number] = answer
    spread = np.full((count, len(classifier.labels)), np.nan, np.float32)
    spread[scored] = probabilities
    kind = pa.list_(pa.string()) if classifier.config.is_multilabel else pa.string()
    columns = {"label": pa.array(labels, kind)}
    if classifier.details.decided_from is not None:
        decisions = np.full(count, None)
        decisions[scored] = classifier.decide(probabilities)
        columns["decision"] = pa.array(decisions, pa.string())
    if numbers := classifier.details.numbers:
        expected = spread.astype(np.float64) @ np.array(numbers)
        columns["expected"] = pa.array(expected.astype(np.float32), from_pandas=True)
        columns["median"] = pa.array(find_medians(spread, numbers), from_pandas=True)
    for label, column in zip(classifier.labels, spread.T, strict=True):
        columns[f"p.{label}"] = pa.array(column, from_pandas=True)  # NaN becomes null
    return columns


def find_own(
    count: int, scored: Sequence[int], probabilities: np.ndarray, classifier: Classifier
) -> pa.Array:
    """Return the probability of the answer to each row, of a multi-label model of each label."""
    if not classifier.config.is_multilabel:
        own = np.full(count, np.nan, np.float32)
        own[scored] = probabilities.max(1, initial=0)
        return pa.array(own, from_pandas=True)
    lists: list[Any] = [None] * count
    has = probabilities >= np.array(classifier.details.thresholds)
    for number, row, chosen in zip(scored, probabilities, has, strict=True):
        lists[number] = row[chosen].tolist()
    return pa.array(lists, pa.list_(pa.float32()))


def find_medians(probabilities: np.ndarray, numbers: Sequence[float]) -> np.ndarray:
    """Return the median of each text's number, float32 [texts], from probabilities; NaN stays."""
    order = np.argsort(numbers)
    has_half = probabilities[:, order].cumsum(1) >= 0.5 - 1e-6
    medians = np.array(numbers, np.float32)[order][has_half.argmax(1)]
    return np.where(np.isnan(probabilities).any(1), np.float32(np.nan), medians)


def read_rows(unit: Unit, config: ScoringConfig, tasks: Sequence[str]) -> Rows:
    """Return a row for each record of a unit, also of a reject, with its label for each task."""
    readers = [make_task_reader(task, unit.file) for task in tasks]
    mapping, titles = dict(unit.file.layout.mapping), list[str]()
    rows = Rows(given=[[] for _ in tasks])
    is_text = find_format(unit.file.layout.name).has_only_strings
    preparer = TextPreparer(config, rows.tally.notes)
    is_kept = not config.output_format and not find_copy_ending(unit.file.layout)
    for item in work_units.read_records(unit, rows.tally):
        record = {} if isinstance(item, Reject) else item[1]
        rows.lines.append(item[0])
        rows.are_records.append(not isinstance(item, Reject))
        if is_kept:
            own = leave_out_lists(record, unit.file.layout)
            rows.records.append(json.dumps(own, default=str))
            rows.columns |= dict.fromkeys(own)
        value, title = (
            record.get(mapping[key]) if key in mapping else None for key in (ID, "title")
        )
        if isinstance(item, Reject):
            text, reason = "", item.reason
        else:
            body = record.get(mapping["text"])
            body, title = choose_text(body, title if config.title else None)
            body = preparer.repair(body) if isinstance(body, str) else body
            text, reason = prepare_text(body, config.repair_run_ons)
        shown = format_id(value)
        rows.integers += (type(value) is int or is_text) and is_integer(shown or "")
        rows.ids.append(shown)
        rows.products.append(format_id(record.get(mapping.get("item_id", ""))))
        rows.months.append(read_month(unwrap(record.get(mapping.get("timestamp", "")))))
        rows.texts.append(text)
        rows.reasons.append(reason or None)
        for labels, read_given in zip(rows.given, readers, strict=True):
            labels.append(None if reason else read_given(record))
        titles.append("" if reason else preparer.make_title(title, text))
    preparer.mask(titles)
    preparer.mask(rows.texts)
    rows.texts = list(map(join_title, titles, rows.texts))
    return rows


def leave_out_lists(record: dict[str, Any], layout: Layout) -> dict[str, Any]:
    """Return a record without its list of reviews, of which it is one, and without joined texts."""
    lists = {name.partition(LIST)[0] for _, name in layout.mapping if LIST in name}
    left_out = lists | dict(layout.joined).keys()
    return {name: value for name, value in record.items() if name not in left_out}


def prepare_text(text: Any, repair_run_ons: bool) -> tuple[str, str]:
    """Return the clean text, or an empty one and why there is none."""
    text, reason = read_review(text)
    cleaned = clean_text(text, repair_run_ons)
    return cleaned, reason or ("" if cleaned else "empty text")


def finish_scores(plan: ScoringPlan) -> dict[str, Any]:
    """Write the scores of each file and return the totals; UserError for too many damaged files."""
    folders, units = plan.folders, read_finished(plan.folders.written, ScoredUnit)
    check_failed(folders.failed)
    damaged = (unit.file for unit in units if unit.notes.get("damaged_files"))
    work_units.check_damage(damaged, plan.config.max_damaged_files)
    units_of: dict[int, list[ScoredUnit]] = {file.index: [] for file in plan.files}
    for unit in units:
        units_of[unit.index].append(unit)
    models = [read_model(model) for model in plan.models]
    digest_of = cache(storage.hash_file)  # a zip file is that of all its members
    files, warnings = [], []
    for file, output in zip(plan.files, plan.outputs, strict=True):
        own = units_of[file.index]
        path = storage.join_path(folders.output, output)
        ids: Counter[str] = Counter()
        with storage.atomic_path(path) as temporary:
            if ending := plan.config.output_format:
                write_table(own, folders.written, file, temporary, ending, ids)
            else:
                write_copy(own, folders.written, file, temporary, list(plan.answers))
        if warning := warn_of_ids(ids, dict(file.layout.mapping).get(ID, "")):
            warnings.append(f"{file.name}: {warning}")
        read, scored = (sum(getattr(unit, part) for unit in own) for part in ("read", "prepared"))
        name, digest = os.path.basename(file.path), digest_of(file.path)
        entry = {"file": name, "sha256": digest, "scores": output, "read": read, "scored": scored}
        files.append(entry | compare_units(own, models))
    totals = {
        "read": sum(file["read"] for file in files),
        "scored": sum(file["scored"] for file in files),
        "unscored": sum_counts(unit.dropped for unit in units),
        "units": len(units),
        "models": dict(zip(plan.tasks, plan.versions, strict=True)),
        "files": files,
        **compare_units(units, models),
        **({"warnings": warnings} if warnings else {}),
    }
    storage.write_json(storage.join_path(folders.output, SCORING_TOTALS), totals)
    return totals


def write_totals(units: int, plan: ScoringPlan) -> None:
    """Finish the scores as a step of the graph, which may be repeated: the work folder stays."""
    totals = finish_scores(plan)
    assert totals["units"] == units, f"{units} units scored, {totals['units']} counted"
