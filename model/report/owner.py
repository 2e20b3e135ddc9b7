"""What the report says to the owner of a dump: which labels look wrong, what can be promised."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from amazon_electra.model.questions.of_model import HEADER, SUSPICIOUS, read_trust
from amazon_electra.model.questions.slices import LEVEL as LEVEL_OF_SLICES
from amazon_electra.model.questions.trust import LEVEL
from amazon_electra.model.report.document import Block, Heading, Paragraph, Table, render_template

SHOWN = 10
"""Rows of suspicious.csv in the report."""
ERRORS, MAX_ERRORS = "errors.html", 5_000
"""Page beside the report with the rows of suspicious.csv, and how many of them it shows."""
FILTERED = ("file", "given", "suggested")
"""Columns of that page whose values can be chosen."""
MAX_SLICES, MAX_WEAK = 25, 3
"""Slices in the report's table, and weak ones in its answer."""


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


def build_owner_blocks(folders: Sequence[Path]) -> list[Block]:
    """Return the answers that lie in model folders, each under its task where there are several."""
    blocks: list[Block] = []
    for place, folder in enumerate(folders):
        if found := read_questions(folder):
            results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
            task = f" ({results['task']})" if len(folders) > 1 else ""
            blocks += build_label_blocks(found, folder, task)
            blocks += build_trust_blocks(found, task)
            blocks += build_slice_blocks(found, task, name_errors_page(place))
            blocks += build_word_blocks(found, task)
    return blocks


def name_weak_slices(folder: Path | None) -> list[Block]:
    """Return the sentence that names the slices that are weak; none where none is."""
    weak = [one["says"] for one in read_questions(folder).get("slices", []) if one["is_weak"]]
    if not weak:
        return []
    more = f", and {len(weak) - MAX_WEAK} more are weak" if len(weak) > MAX_WEAK else ""
    return [Paragraph(f"It is weak here: {'; '.join(weak[:MAX_WEAK])}{more}.", "answer")]


def build_slice_blocks(found: Mapping[str, Any], task: str, page: str) -> list[Block]:
    """Return the accuracy of each slice of the reviews, the weakest first."""
    slices = found.get("slices") or []
    if not slices:
        return []
    rows = [
        [
            one["field"],
            one["value"],
            f"{one['n']:,}",
            f"{one['accuracy']:.1%} ({one['low']:.1%} – {one['high']:.1%})",
            f"{one['rest']:.1%}",
            "weak" if one["is_weak"] else "",
        ]
        for one in slices[:MAX_SLICES]
    ]
    about = (
        "Of answers by models that had not seen the review. A slice is called weak where it is "
        f"worse than the rest by Fisher's exact test at {LEVEL_OF_SLICES:.0%}, corrected for the "
        f"{len(slices)} slices (Holm). {page} beside this page has every wrong answer, with file "
        "and row, and can be filtered."
    )
    header = ("by", "slice", "reviews", "right (95%)", "of the others", "")
    return [Heading(f"Where is it weak?{task}"), Paragraph(about), Table(header, rows)]


def build_word_blocks(found: Mapping[str, Any], task: str) -> list[Block]:
    """Return the words that speak most for each class."""
    if not (words := found.get("words")):
        return []
    rows = [
        [name, ", ".join(f"{word} ({n:,})" for word, n, _ in own) or "none"]
        for name, own in words.items()
    ]
    about = (
        "By the weights of the model's n-grams (of a model with a network, those of the TF-IDF in "
        "it or beside it), added up over the reviews. The numbers are those of the reviews with "
        "the word. `score --explain` gives the words of each review."
    )
    return [
        Heading(f"Which words decide?{task}"),
        Paragraph(about),
        Table(("class", "words that speak for it"), rows),
    ]


def write_errors_page(folder: Path, output: Path, title: str) -> None:
    """Write a page: the wrong answers of suspicious.csv in a table that can be filtered."""
    if not (folder / SUSPICIOUS).is_file():
        return
    with (folder / SUSPICIOUS).open(encoding="utf-8", newline="") as stream:
        rows = [row for row, _ in zip(csv.reader(stream), range(MAX_ERRORS + 1), strict=False)][1:]
    values = {name: sorted({row[HEADER.index(name)] for row in rows}) for name in FILTERED}
    page = render_template(
        "errors.html.j2", title=title, header=HEADER, rows=rows, values=values, most=MAX_ERRORS
    )
    output.write_text(page, encoding="utf-8")


def name_errors_page(place: int) -> str:
    """Return the name of the page of a model, beside the report: errors.html of the first."""
    return f"errors-{place + 1}.html" if place else ERRORS


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
    if costs := found.get("costs"):
        lines.append(("costs", costs["says"].partition(": ")[2].partition(")")[0] + ")"))
    return lines


def build_label_blocks(found: Mapping[str, Any], folder: Path, task: str) -> list[Block]:
    wrong = found["wrong_labels"]
    with (folder / SUSPICIOUS).open(encoding="utf-8", newline="") as stream:
        rows = [row for row, _ in zip(csv.reader(stream), range(SHOWN + 1), strict=False)][1:]
    blocks: list[Block] = [Heading(f"Which labels look wrong?{task}"), Paragraph(wrong["says"])]
    if rows:
        about = (
            f"{SUSPICIOUS} beside the model lists {wrong['listed']:,}, the likeliest first, with "
            f"file, row and id of each record; here are the first {len(rows)}."
        )
        blocks += [Paragraph(about), Table(HEADER, rows)]
    return blocks


def build_trust_blocks(found: Mapping[str, Any], task: str) -> list[Block]:
    trust = found["trust"]
    blocks: list[Block] = [Heading(f"Where can it be trusted?{task}")]
    if costs := found.get("costs"):
        blocks.append(Paragraph(costs["says"], "answer"))
    if asked := trust.get("asked"):
        blocks.append(Paragraph(asked["says"], "answer"))
    if by_class := trust.get("by_class"):
        rows = [
            [name, f"{one['target']:.0%}", *format_promise(one)] for name, one in by_class.items()
        ]
        header = ("answer", "right in at least", *PROMISE)
        blocks.append(Table(header, rows, "For each answer alone"))
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
