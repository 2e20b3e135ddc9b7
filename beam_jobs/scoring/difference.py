"""What changed between two folders of scores: the rows whose answer is another one, and why.

Rows are those of one record by its id, where every row of both folders has one of its own; else by
file and number. Scores of parquet, CSV and JSON Lines are read, the two sides in any of them.
"""

from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import write_csv

MARK = ".scores."
LABEL = ".label"
"""What the name of a column of answers ends with, in scores of several tasks."""
TEXTS = ("file", "id", "text", "label", "decision", "because", "model_version", "reason")
"""Columns that are text, even if all their values are numbers."""
AS_TEXT = pa_csv.ConvertOptions(
    column_types=dict.fromkeys(TEXTS, pa.string()), strings_can_be_null=True
)
READERS = {
    "parquet": pq.read_table,
    "csv": partial(pa_csv.read_csv, convert_options=AS_TEXT),
    "jsonl": pa_json.read_json,
}
HEADER = ("file", "row", "id", "before", "after", "p_before", "p_after", "why")
SHOWN = 5
"""Kinds of changes in a sentence, the most frequent ones."""


@dataclass(frozen=True)
class Difference:
    """The rows of two folders of scores, joined."""

    joined: int
    only_before: int
    only_after: int
    changed: list[dict[str, Any]]
    """A row of HEADER for each record whose label or decision is another one."""

    def describe(self) -> str:
        """Return a sentence."""
        kinds = Counter(f"{one['before']} → {one['after']}" for one in self.changed)
        why = Counter(one["why"] for one in self.changed)
        text = f"{len(self.changed):,} of {self.joined:,} reviews have another answer"
        if self.changed:
            shown = ", ".join(f"{kind} {n:,}" for kind, n in kinds.most_common(SHOWN))
            text += f" ({shown}; by {', '.join(f'{name} {n:,}' for name, n in why.most_common())})"
        alone = (("before", self.only_before), ("after", self.only_after))
        return text + "".join(f"; {n:,} are only {when}" for when, n in alone if n)

    def count_by(self, field: str) -> dict[str, int]:
        """Return the changed rows by the value of a field, the most frequent first."""
        return dict(Counter(str(one[field]) for one in self.changed).most_common())


def diff(before: str | Path, after: str | Path) -> Difference:
    """Return what changed from one folder of scores to another; UserError for what is none."""
    old, new = read_scores(Path(before)), read_scores(Path(after))
    by_id = all(_has_ids(rows) for rows in (old, new))
    keyed = [
        {(str(row["id"]) if by_id else (row["file"], row["row"])): row for row in rows}
        for rows in (old, new)
    ]
    both = [key for key in keyed[0] if key in keyed[1]]
    pairs = ((keyed[0][key], keyed[1][key]) for key in both)
    changed = [describe_change(a, b) for a, b in pairs if _answer(a) != _answer(b)]
    return Difference(len(both), len(old) - len(both), len(new) - len(both), changed)


def read_scores(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of the files of scores of a folder."""
    files = sorted(one for one in folder.glob(f"*{MARK}*") if one.suffix[1:] in READERS)
    if not files:
        raise UserError(f"{folder}: no *{MARK}* in it; `score` writes such a folder")
    rows: list[dict[str, Any]] = []
    for file in files:
        try:
            table = READERS[file.suffix[1:]](str(file))
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{file}: cannot be read ({error}); score it again") from error
        if missing := {"file", "row", "id", "label"} - {*table.column_names}:
            tasks = [n.removesuffix(LABEL) for n in table.column_names if n.endswith(LABEL)]
            if tasks:
                named = ", ".join(tasks)
                raise UserError(
                    f"{file}: has the answers of several tasks ({named}); write those of one by "
                    f"`amazon-electra score --task {tasks[0]}`"
                )
            raise UserError(f"{file}: has no column {sorted(missing)[0]}; score it again")
        rows += table.to_pylist()
    return rows


def _has_ids(rows: list[dict[str, Any]]) -> bool:
    ids = [row["id"] for row in rows]
    return None not in ids and len({*ids}) == len(ids)


def _answer(row: dict[str, Any]) -> tuple[str, str]:
    """Return label and decision; a record without an answer has neither."""
    return str(row["label"] or ""), str(row.get("decision") or "")


def describe_change(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Return a row of HEADER, with why: the `text`, where both sides have it and it is another one,
    the `model`, or the `threshold`, where only the decision changed.
    """
    labels = [str(row["label"] or row.get("reason") or "") for row in (a, b)]
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
    place = {name: b[name] for name in ("file", "row", "id")}
    keys = ("before", "after", "p_before", "p_after")
    return place | dict(zip(keys, (*labels, *sure), strict=True)) | {"why": why}


def write_changes(found: Difference, path: Path) -> None:
    """Write the changed rows as CSV."""
    write_csv(path, HEADER, found.changed)
