"""The rows of a unit, each with its answers or the reason why it has none, and the totals.

A copy of the input has `TASK.predicted`, `TASK.probability` (of a multi-label model, of each), and
where wanted `TASK.decision` and `TASK.because`. A table has `file`, `row` (the record's number,
from 1), `id`, `text`, `label`, `decision`, `p.LABEL` for each class, `because`, `model_version`,
and `reason` where there is no label; of several models, those of each begin with its task.
"""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from itertools import compress
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.utils.shared import Shared

from amazon_electra.beam_jobs.config import SCORING_TOTALS, ScoringConfig
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.command import give_memory_back
from amazon_electra.beam_jobs.corpus.result import read_finished
from amazon_electra.beam_jobs.corpus.write import sum_counts
from amazon_electra.beam_jobs.engine.units import add_to_counters, attempt, check_failed
from amazon_electra.beam_jobs.labels.stars import encode_ratings
from amazon_electra.beam_jobs.labels.values import LABEL, TASK
from amazon_electra.beam_jobs.model_folder.classifier import Classifier, read_review
from amazon_electra.beam_jobs.model_folder.drift import Profile
from amazon_electra.beam_jobs.reading import fields, work_units
from amazon_electra.beam_jobs.reading.fields import LIST
from amazon_electra.beam_jobs.reading.ids import ID, format_id, warn_of_ids
from amazon_electra.beam_jobs.reading.lines import Reject, Tally
from amazon_electra.beam_jobs.reading.work_units import Unit
from amazon_electra.beam_jobs.scoring import comparison, outputs
from amazon_electra.beam_jobs.scoring.classifier import load_classifier, read_profile
from amazon_electra.beam_jobs.scoring.explanation import describe_weights, weigh_phrases
from amazon_electra.beam_jobs.scoring.outputs import find_copy_ending
from amazon_electra.beam_jobs.scoring.plan import ScoringPlan
from amazon_electra.beam_jobs.text.cleaning import clean_text
from amazon_electra.beam_jobs.text.preparation import TextPreparer, join_title


@dataclass
class Rows:
    """The records of a unit in their order."""

    ids: list[str | None] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)  # as read; empty for a reason
    reasons: list[str | None] = field(default_factory=list)  # why a record is not classified
    lines: list[int] = field(default_factory=list)  # where each begins
    are_records: list[bool] = field(default_factory=list)  # whether each could be read
    records: list[dict[str, Any]] = field(default_factory=list)  # where they are to be kept
    tally: Tally = field(default_factory=Tally)
    given: list[list[str | None]] = field(default_factory=list)  # own labels, of each task


class Models(list[tuple[Classifier, Profile | None]]):
    """Models, each with its profile if it has one, that threads share: a plain list cannot be."""


class ScoreUnits(beam.DoFn):
    """Scores units and writes their rows, with one set of classifiers for all threads."""

    def __init__(self, plan: ScoringPlan) -> None:
        self.plan, self.shared = plan, Shared()

    def setup(self) -> None:
        precision = self.plan.config.precision
        self.models = self.shared.acquire(
            lambda: Models(
                (load_classifier(m, precision), read_profile(m)) for m in self.plan.models
            )
        )

    def process(self, unit: Unit) -> Iterator[str]:
        """Score a unit unless an earlier run has; yield its name."""
        work = partial(score_unit, unit, self.plan, self.models)
        for done in attempt(work, unit.name, unit.file.name, self.plan.folders.failed):
            counts = {"read": done.read, "scored": done.prepared, "bytes": done.bytes}
            add_to_counters(counts, done.dropped)
            yield unit.name
        give_memory_back()


def score_unit(unit: Unit, plan: ScoringPlan, models: Models) -> comparison.ScoredUnit:
    """Write the rows of a unit as Arrow, then what they are, unless an earlier run has."""
    name = storage.join_path(plan.folders.written, unit.name)
    if storage.exists(f"{name}.json"):
        return comparison.ScoredUnit(**json.loads(storage.read_bytes(f"{name}.json")))
    is_table = bool(plan.config.output_format)
    rows = read_rows(unit, plan.config, [classifier.details.task for classifier, _ in models])
    is_scored = np.array([reason is None for reason in rows.reasons], bool)
    places = pa.array(np.cumsum(is_scored) - 1, mask=~is_scored)  # null: it has no answer
    texts = list(compress(rows.texts, is_scored))
    columns: dict[str, pa.Array] = {}
    if is_table:
        columns["id"] = pa.array(rows.ids, pa.string())
        columns["text"] = pa.array([text or None for text in rows.texts], pa.string())
    else:
        columns[outputs.LINE] = pa.array(rows.lines)
        columns[outputs.IS_RECORD] = pa.array(rows.are_records)
        if rows.records:
            columns[outputs.RECORD] = pa.array(
                [json.dumps(one, default=str) for one in rows.records]
            )
    tallies, given, trained = list[Any](), list[comparison.GivenLabels](), list[int]()
    for place, (classifier, profile) in enumerate(models):
        probabilities = classifier.score(texts)
        answers = answer_texts(classifier, texts, probabilities, is_table, plan.config.explain)
        own = {key: column.take(places) for key, column in answers.items()}
        if is_table:
            own["model_version"] = pa.array([plan.versions[place]] * len(places), pa.string())
        columns |= {f"{plan.prefixes[place]}{key}": column for key, column in own.items()}
        tallies.append(comparison.count_sample(profile, texts, probabilities))
        labels, known = dict[str, dict[str, int]](), 0
        if not classifier.config.is_multilabel:
            predicted = next(iter(own.values())).to_pylist()
            read = rows.given[place], predicted, rows.texts
            labels, known = comparison.count_labels(*read, plan.models[place])
        given.append(labels)
        trained.append(known)
    if is_table:
        columns["reason"] = pa.array(rows.reasons, pa.string())
    table = pa.table(columns)
    packed = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        storage.atomic_path(f"{name}.arrow") as path,
        pa.ipc.new_file(str(path), table.schema, options=packed) as writer,
    ):
        writer.write_table(table)
    counts = comparison.ScoredUnit(
        unit=unit.name,
        prepared=len(texts),
        file=unit.file.name,
        read=len(rows.reasons),
        lines=rows.tally.lines,
        columns=list(dict.fromkeys(name for record in rows.records for name in record)),
        dropped=dict(Counter(filter(None, rows.reasons))),
        notes=dict(rows.tally.notes),
        bytes=rows.tally.bytes,
        index=unit.file.index,
        tallies=tallies,
        given=given,
        trained=trained,
    )
    storage.write_json(f"{name}.json", asdict(counts))
    return counts


def answer_texts(
    classifier: Classifier,
    texts: Sequence[str],
    probabilities: np.ndarray,
    is_table: bool,
    explains: bool,
) -> dict[str, pa.Array]:
    """Return the columns of a model's answers, of a table of scores or a copy; the answer first."""
    details, is_multilabel = classifier.details, classifier.config.is_multilabel
    kind = pa.list_(pa.string()) if is_multilabel else pa.string()
    answers = pa.array(classifier.answer(probabilities), kind)
    columns = {"label" if is_table else "predicted": answers}
    if not is_table:
        rounded = np.round(probabilities.astype(np.float64), 6)
        columns["probability"] = pa.array(rounded.max(1))
        if is_multilabel:  # that of each label
            has = probabilities >= np.array(details.thresholds)
            own = [row[chosen].tolist() for row, chosen in zip(rounded, has, strict=True)]
            columns["probability"] = pa.array(own, pa.list_(pa.float64()))
    if details.decided_from is not None:
        columns["decision"] = pa.array(classifier.decide(probabilities), pa.string())
    if is_table:
        of_labels = zip(classifier.labels, probabilities.T, strict=True)
        columns |= {f"p.{label}": pa.array(column) for label, column in of_labels}
    if explains:
        chosen = zip(texts, probabilities.argmax(1).tolist(), strict=True)
        because = [describe_weights(weigh_phrases(classifier, *both)) for both in chosen]
        columns["because"] = pa.array(because, pa.string())
    return columns


def read_rows(unit: Unit, config: ScoringConfig, tasks: Sequence[str]) -> Rows:
    """Return a row for each record of a unit, also of a reject, with its label for each task."""
    layout = unit.file.layout
    mapping, titles = dict(layout.mapping), list[str]()
    rows = Rows(given=[[] for _ in tasks])
    columns = [task.removeprefix(TASK) for task in tasks if task.startswith(TASK)]
    of_labels = mapping | {f"{LABEL}{column}": column for column in columns}
    notes = rows.tally.notes
    read_fields = fields.make_review_reader(of_labels, notes, columns, config.title)
    preparer = TextPreparer(config, notes)
    is_kept = not config.output_format and not find_copy_ending(layout)
    # a list of reviews, of which the record is one, and joined texts
    left_out = {name.partition(LIST)[0] for name in mapping.values() if LIST in name}
    left_out |= dict(layout.joined).keys()
    for item in work_units.read_records(unit, rows.tally):
        record, text, title = dict[str, Any](), "", ""
        given: list[str | None] = [None] * len(tasks)
        if isinstance(item, Reject):
            reason = item.reason
        else:
            record = item[1]
            review = read_fields(record)
            body = preparer.repair(review.text) if isinstance(review.text, str) else review.text
            text, reason = prepare_text(body, config.repair_run_ons)
            if not reason:
                [rating] = encode_ratings({review.rating: 1}) if review.rating else [None]
                own = iter(review.labels)
                given = [next(own) if task.startswith(TASK) else rating for task in tasks]
                title = preparer.make_title(review.title, text)
        own_id = format_id(record.get(mapping[ID])) if ID in mapping else None
        rows.lines.append(item[0])
        rows.are_records.append(not isinstance(item, Reject))
        if is_kept:
            rows.records.append({n: value for n, value in record.items() if n not in left_out})
        rows.ids.append(own_id)
        rows.texts.append(text)
        rows.reasons.append(reason or None)
        titles.append(title)
        for labels, label in zip(rows.given, given, strict=True):
            labels.append(label)
    preparer.mask(titles)
    preparer.mask(rows.texts)
    rows.texts = list(map(join_title, titles, rows.texts))
    return rows


def prepare_text(text: Any, repair_run_ons: bool) -> tuple[str, str]:
    """Return the clean text, or an empty one and why there is none."""
    text, reason = read_review(text)
    cleaned = clean_text(text, repair_run_ons)
    return cleaned, reason or ("" if cleaned else "empty text")


def finish_scores(plan: ScoringPlan) -> dict[str, Any]:
    """Write the scores of each file and return the totals."""
    folders, units = plan.folders, read_finished(plan.folders.written, comparison.ScoredUnit)
    check_failed(folders.failed)
    units_of = defaultdict[int, list[comparison.ScoredUnit]](list)
    for unit in units:
        units_of[unit.index].append(unit)
    profiles = dict(zip(plan.tasks, map(read_profile, plan.models), strict=True))
    digest_of = cache(storage.hash_file)  # a zip file is that of all its members
    files, warnings = list[dict[str, Any]](), list[str]()
    for file, output in zip(plan.files, plan.outputs, strict=True):
        own = units_of[file.index]
        ids: Counter[str] = Counter()
        with storage.atomic_path(storage.join_path(folders.output, output)) as path:
            given, copied = (own, folders.written, file, path), find_copy_ending(file.layout)
            if plan.config.output_format:
                outputs.write_table(*given, plan.config.output_format, ids)
            elif not copied:
                outputs.write_records(*given, list(plan.answers))
            elif copied == "parquet":
                outputs.copy_rows(*given)
            else:
                outputs.copy_lines(*given, list(plan.answers))
        if warning := warn_of_ids(ids, dict(file.layout.mapping).get(ID, "")):
            warnings.append(f"{file.name}: {warning}")
        entry = {
            "file": os.path.basename(file.path),
            "sha256": digest_of(file.path),
            "scores": output,
            "read": sum(unit.read for unit in own),
            "scored": sum(unit.prepared for unit in own),
        }
        files.append(entry | comparison.compare_units(own, profiles))
    totals = {
        "read": sum(file["read"] for file in files),
        "scored": sum(file["scored"] for file in files),
        "unscored": sum_counts(unit.dropped for unit in units),
        "units": len(units),
        "models": dict(zip(plan.tasks, plan.versions, strict=True)),
        "files": files,
        **comparison.compare_units(units, profiles),
        **({"warnings": warnings} if warnings else {}),
    }
    storage.write_json(storage.join_path(folders.output, SCORING_TOTALS), totals)
    return totals
