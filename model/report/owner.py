"""Reads the files beside a model that is kept: answers to its owner's questions, wrong answers,
cost.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.nesting import find_json
from amazon_electra.model.questions.of_model import ERRORS, HEADER, SUSPICIOUS
from amazon_electra.model.questions.wrong_labels import is_claimed
from amazon_electra.model.report.document import render_page

SHOWN = 10
"""Rows of suspicious.csv in the report."""
ERRORS_PAGE, MAX_ERRORS = "errors.html", 5_000
"""Page beside the report with the rows of errors.csv, and how many of them it shows."""
FILTERED = ("file", "month", "given", "suggested")
"""Columns of that page whose values can be chosen."""
COST = "cost.json"
"""File of a model folder with its megabytes and the milliseconds of a review."""


@dataclass(frozen=True)
class Owner:
    """A model's answers to the questions of its dump's owner."""

    task: str
    found: dict[str, Any]
    """The `questions` of results.json, empty where it has none."""
    suspicious: Sequence[Sequence[str]]
    """The first rows of suspicious.csv."""
    page: str
    """Name of the page of its wrong answers, beside the report."""
    columns: Sequence[str] = HEADER
    cost: dict[str, float] = field(default_factory=dict)
    """`megabytes` of the folder, `milliseconds` a review; empty where unknown."""

    @classmethod
    def read(cls, folder: Path, place: int) -> "Owner":
        """Return the answers that lie in the folder of the report's model `place`."""
        results = find_json(folder / "results.json")
        found = results.get("questions") or {}
        rows = read_rows(folder / SUSPICIOUS, SHOWN) if found else []
        page = f"errors-{place + 1}.html" if place else ERRORS_PAGE
        cost = find_json(folder / COST)
        return cls(results.get("task", ""), found, rows, page, cost=cost)

    @property
    def weak(self) -> list[str]:
        """The sentences of the weak slices."""
        return [one["says"] for one in self.found.get("slices", []) if one["is_weak"]]


def read_rows(file: Path, most: int) -> list[list[str]]:
    """Return the first rows of suspicious.csv or errors.csv, without the header."""
    with file.open(encoding="utf-8", newline="") as stream:
        return [row for row, _ in zip(csv.reader(stream), range(most + 1), strict=False)][1:]


def write_errors_page(folder: Path, output: Path, title: str) -> None:
    """Write a page: the wrong answers of errors.csv in a table that can be filtered."""
    if not (folder / ERRORS).is_file():
        return
    rows = read_rows(folder / ERRORS, MAX_ERRORS)
    values = {name: sorted({row[HEADER.index(name)] for row in rows}) for name in FILTERED}
    page = render_page(
        "errors.html.j2", title=title, header=HEADER, rows=rows, values=values, most=MAX_ERRORS
    )
    output.write_text(page, encoding="utf-8")


def list_short_answers(folder: Path) -> list[tuple[str, str]]:
    """Return a name and a line for each question that has something to say, for the terminal."""
    results = find_json(folder / "results.json")
    found = results.get("questions")
    if not found:
        return []
    wrong, lines = found["wrong_labels"], list[tuple[str, str]]()
    if found["giveaway"]:
        lines.append(("giveaway", f"{results['task']}: {found['giveaway']['says']}"))
    if wrong["listed"]:
        about = f"none of {wrong['n']:,} is called wrong, {wrong['listed']:,} are worth a look"
        if is_claimed(wrong["low"], wrong["n"]):
            about = f"about {wrong['estimate']:,.0f} of {wrong['n']:,} look wrong, the likeliest "
            about += f"{wrong['listed']:,} are listed"
        lines.append(("labels", f"{about}: {folder / SUSPICIOUS}"))
    if asked := found["trust"].get("asked"):
        lines.append(("trust", asked["says"].partition(" (Clopper")[0]))
    return lines
