"""What the report says to the owner of a dump: which labels look wrong, what can be promised."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amazon_electra.model.questions.of_model import HEADER, SUSPICIOUS, read_trust
from amazon_electra.model.questions.trust import LEVEL
from amazon_electra.model.report.document import Block, Heading, Paragraph, Table

SHOWN = 10
"""Rows of suspicious.csv in the report."""


def read_questions(folder: Path | None) -> dict[str, Any]:
    """Return the answers that lie in a model folder; none where it has none."""
    file = folder / "results.json" if folder else None
    if not file or not file.exists():
        return {}
    return dict(json.loads(file.read_text(encoding="utf-8")).get("questions") or {})


def warn_of_giveaway(folder: Path | None) -> list[Block]:
    """Return the warning of a model that is fooled; none where it is not."""
    if found := read_questions(folder).get("giveaway"):
        return [Paragraph(f"This model may be fooled: {found['says']}", "warning")]
    return []


def build_owner_blocks(folder: Path | None) -> list[Block]:
    """Return the answers that lie in a model folder."""
    found = read_questions(folder)
    if not folder or not found:
        return []
    return [*build_label_blocks(found, folder), *build_trust_blocks(found)]


def list_short_answers(folder: Path) -> list[tuple[str, str]]:
    """Return a name and a line for each question that has something to say, for the terminal."""
    found = read_questions(folder)
    if not found:
        return []
    wrong, lines = found["wrong_labels"], list[tuple[str, str]]()
    if found["giveaway"]:
        lines.append(("giveaway", found["giveaway"]["says"]))
    if wrong["listed"]:
        about = f"about {wrong['estimate']:,.0f} of {wrong['n']:,} look wrong"
        lines.append(("labels", f"{about}: {folder / SUSPICIOUS}"))
    if asked := found["trust"].get("asked"):
        lines.append(("trust", asked["says"].partition(" (Clopper")[0]))
    return lines


def build_label_blocks(found: Mapping[str, Any], folder: Path) -> list[Block]:
    wrong = found["wrong_labels"]
    with (folder / SUSPICIOUS).open(encoding="utf-8", newline="") as stream:
        rows = [row for row, _ in zip(csv.reader(stream), range(SHOWN + 1), strict=False)][1:]
    blocks: list[Block] = [Heading("Which labels look wrong?"), Paragraph(wrong["says"])]
    if rows:
        about = (
            f"{SUSPICIOUS} beside the model lists {wrong['listed']:,}, the likeliest first, with "
            f"file, row and id of each record; here are the first {len(rows)}."
        )
        blocks += [Paragraph(about), Table(HEADER, rows)]
    return blocks


def build_trust_blocks(found: Mapping[str, Any]) -> list[Block]:
    trust = found["trust"]
    blocks: list[Block] = [Heading("Where can it be trusted?")]
    if asked := trust.get("asked"):
        blocks.append(Paragraph(asked["says"], "answer"))
        rows = [[name, *format_promise(one)] for name, one in trust["by_class"].items()]
        about = f"For each answer alone: right in at least {asked['target']:.0%}"
        blocks.append(Table(("answer", *PROMISE), rows, about))
    rows = [[f"{one['target']:.0%}", *format_promise(one)] for one in trust["targets"]]
    about = (
        "Where answers below a probability go to a person, the share that is answered and the "
        f"promise that holds with {LEVEL:.0%}, each taken alone. `run --target-accuracy 0.97` "
        "makes `score` write `decided` or `ask` for every review."
    )
    return [*blocks, Paragraph(about), Table(("right in at least", *PROMISE), rows)]


PROMISE = ("answered (95%)", "measured", "from probability")


def format_promise(found: Mapping[str, Any]) -> list[str]:
    """Return the share that is answered, its accuracy as measured, and the threshold."""
    one = read_trust(dict(found))
    if one.threshold is None:
        return [f"none: {one.n:,} labelled reviews do not show it", "", ""]
    share = f"{one.answered:.0%} ({one.low:.0%} to {one.high:.0%})"
    return [share, f"{one.accuracy:.1%}", f"{one.threshold:.3f}"]
