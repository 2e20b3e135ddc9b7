"""`amazon-electra dumps`: the public review dumps, and how they are fetched."""

import argparse

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.settings import OptionParser
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.flows.dumps.public_dumps import read_releases, spell_command


def add_dumps_options(dumps: OptionParser) -> None:
    actions = dumps.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser(
        "list",
        help="list public dumps",
        description="List the public releases by category, each with a command that fetches one.",
    )
    listing.add_argument("--release", help="only this release, for example 2023")
    listing.set_defaults(do=list_dumps)


def list_dumps(arguments: argparse.Namespace) -> None:
    releases = read_releases()
    if arguments.release and arguments.release not in releases:
        raise UserError(
            f"--release {arguments.release}: no such release; there are {', '.join(releases)}"
        )
    for name, release in releases.items():
        if arguments.release in (None, name):
            print(f"{name}: {release['about']}, for example")
            print(f"  {spell_command(release['address'], next(iter(release['reviews'])))}")
            for category, reviews in release["reviews"].items():
                count = f"about {reviews / 1e6:6.1f} million reviews" if reviews else ""
                print(f"  {category:<32}{count}".rstrip())
