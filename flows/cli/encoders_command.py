"""`amazon-electra encoders`: published encoders that are known to work, and what they cost here."""

import argparse

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.languages import list_languages
from amazon_electra.beam_jobs.core.settings import OptionParser
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.model.encoders.known import describe_encoders


def add_encoders_options(encoders: OptionParser) -> None:
    encoders.description = (
        "List published encoders for --start-from, of kinds that the tests cover from start to "
        "end, and how long each takes to adapt on this machine."
    )
    encoders.add_argument(
        "--language",
        default="",
        metavar="CODE",
        help="only those that read this language, for example de",
    )
    encoders.set_defaults(do=list_encoders)


def list_encoders(arguments: argparse.Namespace) -> None:
    """Print the table; the machine is measured for a tenth of a second."""
    from amazon_electra.model.device import open_device  # torch takes seconds

    language = arguments.language
    if language and language not in list_languages():
        raise UserError(f"--language {language}: give a code of two letters, such as de")
    flops = open_device("auto", "auto").measure_peak_flops()
    print("\n".join(describe_encoders(language, flops)))
