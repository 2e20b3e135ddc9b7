"""What changed between two folders of scores, or two dumps: the rows with another answer, and why.

Rows are those of one record by its id, where every row of both sides has one of its own; else by
file and number. Scores of parquet, CSV and JSON Lines are read, the two sides in any of them, and
of several tasks those that both sides have. All rows are in memory.
"""

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from amazon_electra.beam_jobs.config import ScoringOptions
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import write_csv
from amazon_electra.beam_jobs.core.settings import build_settings

MARK = ".scores."
LABEL = ".label"
"""What the name of a column of answers ends with, in scores of several tasks."""
TEXTS = ("file", "id", "product", "month", "text", "reason")
OF_TASK = ("label", "decision", "because", "model_version")
"""Columns that are text, even if all their values are numbers; those that each task has."""
PLACE = ("file", "row", "id", "product", "month")
HEADER = ("task", *PLACE, "before", "after", "p_before", "p_after", "why")
GROUPS = ("task", "file", "month", "product")
"""Fields by which rows are counted."""
MIN_CHANGES = 3
"""Of a month or product that is named, which has twice as many as all others have."""
SHOWN = 5
"""Kinds of changes in a sentence, the most frequent ones."""
UNIT_BYTES = 64 << 20
"""Of a dump that are read at once."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """The rows of two sides, joined; of several tasks each row counts once for each."""

    joined: int
    only_before: int
    only_after: int
    changed: list[Row]
    """A row of HEADER for each whose answer is another one."""
    groups: dict[str, Counter[str]] = field(default_factory=dict)
    """Joined rows by the values of each of GROUPS."""
    what: str = "another answer"

    def describe(self) -> str:
        """Return a sentence."""
        kinds = Counter(f"{one['before']} → {one['after']}" for one in self.changed)
        text = f"{len(self.changed):,} of {self.joined:,} rows have {self.what}"
        if self.changed:
            shown = ", ".join(f"{kind} {n:,}" for kind, n in kinds.most_common(SHOWN))
            why = ", ".join(f"{name} {n:,}" for name, n in self.count_by("why").items())
            text += f" ({shown}; by {why}"
            for name in GROUPS[2:]:
                value, n = next(iter(self.count_by(name).items()))
                usual = len(self.changed) * self.groups[name][value] / self.joined
                if value and n >= max(MIN_CHANGES, 2 * usual):
                    text += f"; most in {name} {value}: {n:,} of {self.groups[name][value]:,}"
            text += ")"
        alone = (("before", self.only_before), ("after", self.only_after))
        return text + "".join(f"; {n:,} are only {when}" for when, n in alone if n)

    def count_by(self, name: str) -> dict[str, int]:
        """Return the changed rows by the value of a field, the most frequent first."""
        return dict(Counter(str(one[name]) for one in self.changed).most_common())


def diff(before: str | Path, after: str | Path, label: str = "") -> Difference:
    """Return what changed from one folder of scores to another, or from one dump to another:
    texts, and stars or the column `label`. UserError for what is neither, or one of each.
    """
    are_scores = [any(Path(one).glob(f"*{MARK}*")) for one in (before, after)]
    if len({*are_scores}) > 1:
        which = Path(after if are_scores[0] else before)
        raise UserError(f"{which}: no *{MARK}* in it; give two folders of `score`, or two dumps")
    if are_scores[0]:
        old, new = read_tasks(Path(before)), read_tasks(Path(after))
    else:
        old, new = ({label or "stars": read_dump(one, label)} for one in (before, after))
    if not (tasks := [task for task in old if task in new]):
        named = [", ".join(filter(None, one)) or "one task" for one in (old, new)]
        raise UserError(
            f"{after}: has the answers of {named[1]}, and {before} those of {named[0]}; write both "
            "by `amazon-electra score --task TASK`"
        )
    changed: list[Row] = []
    groups: dict[str, Counter[str]] = {name: Counter() for name in GROUPS}
    joined, alone = 0, [0, 0]
    for task in tasks:
        pairs, rest = join_rows(old[task], new[task])
        joined, alone = joined + len(pairs), [a + b for a, b in zip(alone, rest, strict=True)]
        for a, b in pairs:
            row = {"task": task, **{name: _show(b.get(name)) for name in PLACE}}
            for name in GROUPS:
                groups[name][row[name]] += 1
            if change := describe_change(a, b) if are_scores[0] else describe_edit(a, b):
                changed.append(row | {"row": b["row"]} | change)
    what = "another answer" if are_scores[0] else f"another text or {tasks[0]}"
    return Difference(joined, alone[0], alone[1], changed, groups, what)


def _show(value: Any) -> str:
    return "" if value is None else str(value)


def join_rows(
    old: Sequence[Row], new: Sequence[Row]
) -> tuple[list[tuple[Row, Row]], tuple[int, int]]:
    """Return the rows of the same record, and how many each side has that the other has not."""
    ids = [[row["id"] for row in rows] for rows in (old, new)]
    by_id = all(None not in one and len({*one}) == len(one) for one in ids)
    keyed = [
        {(str(row["id"]) if by_id else (row["file"], row["row"])): row for row in rows}
        for rows in (old, new)
    ]
    pairs = [(row, keyed[1][key]) for key, row in keyed[0].items() if key in keyed[1]]
    return pairs, (len(old) - len(pairs), len(new) - len(pairs))


def read_scores(folder: Path) -> list[Row]:
    """Return the rows of the files of scores of a folder, which are of one task."""
    found = read_tasks(folder)
    if len(found) > 1:
        file = sorted(folder.glob(f"*{MARK}*"))[0]
        raise UserError(
            f"{file}: has the answers of several tasks ({', '.join(found)}); write those of one by "
            f"`amazon-electra score --task {next(iter(found))}`"
        )
    return next(iter(found.values()))


def read_tasks(folder: Path) -> dict[str, list[Row]]:
    """Return the rows of the files of scores of a folder by task, which is empty where there is
    one.
    """
    files = sorted(one for one in folder.glob(f"*{MARK}*") if one.suffix in READERS)
    if not files:
        raise UserError(f"{folder}: no *{MARK}* in it; `score` writes such a folder")
    rows: dict[str, list[Row]] = {}
    for file in files:
        try:
            table = READERS[file.suffix](str(file))
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{file}: cannot be read ({error}); score it again") from error
        names = table.column_names
        tasks = [one.removesuffix(LABEL) for one in names if one.endswith(LABEL)]
        if missing := {"file", "row", "id", *(() if tasks else ("label",))} - {*names}:
            raise UserError(f"{file}: has no column {sorted(missing)[0]}; score it again")
        for task in tasks or [""]:
            begin = f"{task}." if tasks else ""
            own = {one: one.removeprefix(begin) for one in names if one.startswith(begin)}
            own |= {one: one for one in (*TEXTS, "row") if one in names}
            part = table.select(list(own)).rename_columns(list(own.values()))
            rows.setdefault(task, []).extend(part.to_pylist())
    return rows


def read_csv(file: str) -> pa.Table:
    """Return a table with text where scores have it, even if all values are numbers."""
    with open(file, encoding="utf-8", newline="") as stream:
        names = next(csv.reader(stream), [])
    kinds = [one for one in names if one in TEXTS or one.endswith(OF_TASK)]
    options = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(kinds, pa.string()), strings_can_be_null=True
    )
    return pa_csv.read_csv(file, convert_options=options)


READERS = {".parquet": pq.read_table, ".jsonl": pa_json.read_json, ".csv": read_csv}


def read_dump(path: str | Path, label: str) -> list[Row]:
    """Return the records of a dump with their texts, as they are classified, and their stars or
    the values of the column `label`, as typed.
    """
    from amazon_electra.beam_jobs.reading import work_units  # loads Beam
    from amazon_electra.beam_jobs.reading.ids import add_id_column
    from amazon_electra.beam_jobs.scoring import comparison, score_files

    given = {"model": ("none",), "input": ((str(path),),), "output": "none"}
    options = build_settings(ScoringOptions, given)
    task = f"{comparison.LABEL}{label}" if label else ""
    found: list[Row] = []
    with TemporaryDirectory() as cuts:
        for listed in work_units.list_dump_files(options, [label] if label else []):
            file, first = add_id_column(listed, None), len(found)
            for unit in work_units.cut_file(file, UNIT_BYTES, cuts):
                rows = score_files.read_rows(unit, options, [task])
                columns: Iterable[Any] = zip(
                    *(
                        rows.ids,
                        rows.products,
                        rows.months,
                        rows.texts,
                        rows.given[0],
                        rows.reasons,
                    ),
                    strict=True,
                )
                for values in columns:
                    names = ("id", "product", "month", "text", "label", "reason")
                    row = dict(zip(names, values, strict=True))
                    if not label and row["label"]:  # 4.0/5
                        row["label"] = f"{float(row['label'].partition('/')[0]):g}"
                    found.append({"file": file.short_name, "row": len(found) - first + 1, **row})
    return found


def describe_change(a: Row, b: Row) -> Row | None:
    """Return what changed between two answers to a record, with why: the `text`, where both sides
    have it and it is another one, the `model`, or the `threshold`, where only the decision changed;
    None where nothing did. A record without an answer has neither label nor decision.
    """
    answers = [(row["label"] or "", row.get("decision") or "") for row in (a, b)]
    if answers[0] == answers[1]:
        return None
    labels = [_show(row["label"] or row.get("reason")) for row in (a, b)]
    if a.get("text") != b.get("text") and "text" in a and "text" in b:
        why = "text"
    elif a["label"] == b["label"] and a["label"]:
        why = "threshold"
    elif a.get("model_version") != b.get("model_version"):
        why = "model"
    else:
        why = "text or settings"
    if a["label"] == b["label"]:
        labels = [
            f"{label}, {row.get('decision')}" for label, row in zip(labels, (a, b), strict=True)
        ]
    sure = [row.get(f"p.{row['label']}") for row in (a, b)]
    keys = ("before", "after", "p_before", "p_after")
    return dict(zip(keys, (*labels, *sure), strict=True)) | {"why": why}


def describe_edit(a: Row, b: Row) -> Row | None:
    """Return what changed between two records: the `text`, the `label`, or both; None where nothing
    did.
    """
    changed = [name for name in ("text", "label") if a[name] != b[name]]
    if not changed:
        return None
    labels = [_show(row["label"] or row["reason"]) for row in (a, b)]
    return {"before": labels[0], "after": labels[1], "p_before": None, "p_after": None} | {
        "why": " and ".join(changed)
    }


def write_changes(found: Difference, path: Path) -> None:
    """Write the changed rows as CSV, and beside them NAME.by.csv: how many rows were joined and
    changed by each value of GROUPS; the sums of each group are those of all rows.
    """
    write_csv(path, HEADER, found.changed)
    rows: list[Row] = []
    for name in GROUPS:
        changed = found.count_by(name)
        rows += [
            {"by": name, "value": value, "joined": n, "changed": changed.get(value, 0)}
            for value, n in sorted(
                found.groups[name].items(), key=lambda one: (-changed.get(one[0], 0), one[0])
            )
        ]
    write_csv(path.with_suffix(".by.csv"), ("by", "value", "joined", "changed"), rows)
