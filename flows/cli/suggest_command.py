"""`amazon-electra suggest`: the reviews that are worth a label next."""

import argparse
from pathlib import Path

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.progress import format_count
from amazon_electra.beam_jobs.core.settings import OptionParser
from amazon_electra.beam_jobs.core.terminal import print


def add_suggest_options(command: OptionParser) -> None:
    command.description = (
        "Choose reviews from a table of scores (`score --format parquet`) that the model is unsure "
        "of, a rare class first and none like another, and write them for a labelling tool."
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
