"""`amazon-electra dumps`: the public review dumps by name, and any other by its address."""

import argparse
import json
from pathlib import Path

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.settings import OptionParser
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.flows.dumps.public_dumps import fetch_dump, find_address, read_releases


def add_dumps_options(dumps: OptionParser) -> None:
    actions = dumps.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser(
        "list", help="list what can be fetched", description="List the public releases by name."
    )
    listing.add_argument("--release", help="only this release, for example 2023")
    listing.set_defaults(do=list_dumps)
    fetching = actions.add_parser(
        "fetch",
        help="fetch a dump",
        description="Fetch a dump by its name in `dumps list`, or from any http(s) address. An "
        "interrupted fetch continues; the file appears under its name once it is complete.",
    )
    fetching.add_argument(
        "name", metavar="NAME|URL", help="for example 2018-5core/All_Beauty, or https://…"
    )
    fetching.add_argument(
        "--output", type=Path, default=Path("dumps"), help="folder to put it in (default: dumps)"
    )
    fetching.add_argument("--sha256", default="", help="refuse the file unless this is its SHA-256")
    fetching.set_defaults(do=fetch)


def list_dumps(arguments: argparse.Namespace) -> None:
    releases = read_releases()
    if arguments.release and arguments.release not in releases:
        raise UserError(
            f"--release {arguments.release}: no such release; there are {', '.join(releases)}"
        )
    for name, release in releases.items():
        if arguments.release in (None, name):
            print(f"{name}: {release['about']}")
            for category, reviews in release["reviews"].items():
                count = f"about {reviews / 1e6:6.1f} million reviews" if reviews else ""
                print(f"  {name}/{category:<32}{count}".rstrip())


def fetch(arguments: argparse.Namespace) -> None:
    """Fetch a dump and print where it is, as one JSON line."""
    address = find_address(arguments.name)
    path = fetch_dump(address, arguments.output, arguments.sha256)
    fetched = {"path": str(path), "address": address, "bytes": path.stat().st_size}
    print(json.dumps(fetched))
