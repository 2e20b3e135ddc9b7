"""Reads the files beside a model that is kept: answers to its owner's questions, cost."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.nesting import find_json
from amazon_electra.model.questions.of_model import HEADER, SUSPICIOUS
from amazon_electra.model.questions.wrong_labels import is_claimed

SHOWN = 10
"""Rows of suspicious.csv in the report."""
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
    cost: dict[str, float]
    """`megabytes` of the folder, `milliseconds` a review; empty where unknown."""
    columns = HEADER

    @classmethod
    def read(cls, folder: Path) -> "Owner":
        results = find_json(folder / "results.json")
        found, rows = results.get("questions") or {}, list[list[str]]()
        if found:
            with (folder / SUSPICIOUS).open(encoding="utf-8", newline="") as file:
                rows = [row for row, _ in zip(csv.reader(file), range(SHOWN + 1), strict=False)][1:]
        return cls(results.get("task", ""), found, rows, find_json(folder / COST))

    @property
    def weak(self) -> list[str]:
        """The sentences of the weak slices."""
        return [one["says"] for one in self.found.get("slices", []) if one["is_weak"]]


def list_short_answers(folder: Path) -> list[tuple[str, str]]:
    """Return a name and a line for each question that has something to say, for the terminal."""
    results, lines = find_json(folder / "results.json"), list[tuple[str, str]]()
    if says := results.get("says"):  # it was made without a label
        shares = {name: n / results["texts"] for name, n in results["answers"].items()}
        answers = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
        lines += [("accuracy", says), ("answers", f"of {results['texts']:,} reviews: {answers}")]
        said = ((name, "; ".join(own[:SHOWN])) for name, own in results["titles"].items() if own)
        return [*lines, *(("titles", f"{name}: {own}") for name, own in said)]
    if not (found := results.get("questions")):
        return lines
    wrong = found["wrong_labels"]
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
