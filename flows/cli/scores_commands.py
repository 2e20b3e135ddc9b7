"""`amazon-electra diff` and `suggest`: what files of scores are good for."""

import argparse
from pathlib import Path

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.progress import format_count
from amazon_electra.beam_jobs.core.settings import OptionParser
from amazon_electra.beam_jobs.core.terminal import print


def add_diff_options(change: OptionParser) -> None:
    change.description = (
        "Join the rows of two folders that `score` wrote, or of two dumps, and list those with "
        "another answer: before and after, with probabilities, and whether text, model or "
        "threshold is another; count them by month and product."
    )
    change.set_defaults(do=print_difference, parser=change)
    change.add_argument("before", metavar="BEFORE", help="folder of scores, or dump")
    change.add_argument("after", metavar="AFTER", help="folder of scores, or dump")
    change.add_argument("--label", default="", help="column of a dump to compare (default: stars)")
    change.add_argument(
        "--output",
        default="changed.csv",
        help="file for the rows, beside which NAME.by.csv has the counts (default: changed.csv)",
    )


def add_suggest_options(command: OptionParser) -> None:
    command.description = (
        "Choose reviews from scores with texts (`score --with-text`) that the model is unsure of, "
        "a rare class first and none like another, and write them for a labelling tool."
    )
    command.set_defaults(do=print_suggestions, parser=command)
    command.add_argument("--scores", default="scores", help="folder of scores (default: scores)")
    command.add_argument("--number", type=int, default=200, help="of reviews (default: 200)")
    command.add_argument(
        "--output",
        default="to_label.jsonl",
        help="file: .jsonl for doccano, .json for Label Studio (default: to_label.jsonl)",
    )


def print_suggestions(arguments: argparse.Namespace) -> None:
    """Write the reviews that are worth a label."""
    from amazon_electra.beam_jobs.scoring.suggestion import suggest, write_suggestions

    if arguments.number < 1:
        raise UserError("give 1 or more", "number", arguments.number)
    rows = suggest(arguments.scores, arguments.number)
    write_suggestions(rows, Path(arguments.output))
    print(f"{arguments.output}: {format_count(len(rows), 'review')} to label")


def print_difference(arguments: argparse.Namespace) -> None:
    """Print what changed between two folders of scores; write the rows."""
    from amazon_electra.beam_jobs.scoring.difference import diff, write_changes

    found = diff(arguments.before, arguments.after, arguments.label)
    write_changes(found, Path(arguments.output))
    print(f"{arguments.output}: {found.describe()}")
