"""`amazon-electra dumps`: the public review dumps by name, and any other by its address."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from beam_jobs.job.errors import UserError
from flows.configuration.addresses import explain_refusal
from flows.dumps.catalog import RELEASES
from flows.dumps.download import Transfer, TransferFailed, fetch_file, parse_file_name


def add_dump_commands(commands: Any) -> None:
    dumps = commands.add_parser(
        "dumps", help="list and fetch public dumps", description="Public review dumps."
    )
    actions = dumps.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser(
        "list", help="what can be fetched by name", description="The public releases by name."
    )
    listing.add_argument("--release", choices=sorted(RELEASES), help="only this release")
    listing.set_defaults(do=list_dumps)
    fetching = actions.add_parser(
        "fetch",
        help="fetch a dump",
        description="Fetches a dump by its name in `dumps list`, or from any http(s), gs or s3 "
        "address. An interrupted "
        "fetch continues where it was; the file appears under its name when it is whole.",
    )
    fetching.add_argument(
        "name", metavar="NAME|URL", help="for example 2018-5core/All_Beauty, or https://…"
    )
    fetching.add_argument(
        "--output", type=Path, default=Path("dumps"), help="folder to put it in (default: dumps)"
    )
    fetching.add_argument("--sha256", help="refuse the file unless this is its SHA-256")
    fetching.add_argument("--size", type=int, help="refuse the file unless it has so many bytes")
    fetching.add_argument(
        "--attempts", type=int, default=8, help="in a row without a new byte (default: 8)"
    )
    fetching.set_defaults(do=fetch_dump)


def list_dumps(arguments: argparse.Namespace) -> None:
    for name, release in RELEASES.items():
        if arguments.release in (None, name):
            print(f"{name}: {release.about}")
            for category, reviews in release.reviews.items():
                count = f"about {reviews / 1e6:6.1f} million reviews" if reviews else ""
                print(f"  {name}/{category:<32}{count}".rstrip())


def fetch_dump(arguments: argparse.Namespace) -> None:
    """Fetch a dump and print where it is, as one JSON line."""
    address = find_address(arguments.name)
    target = arguments.output / parse_file_name(address)
    if arguments.attempts < 1:
        raise UserError(f"--attempts {arguments.attempts}: must be at least 1")
    transfer = Transfer(address, target, arguments.sha256, arguments.size, arguments.attempts)
    try:
        print(json.dumps(fetch_file(transfer)))
    except TransferFailed as failure:
        print(f"failed: {failure}", file=sys.stderr)
        raise SystemExit(1) from failure


def find_address(name: str) -> str:
    """Return the address of a named dump; an address is its own."""
    if urlsplit(name).scheme:
        if why := explain_refusal(name):
            raise UserError(f"{name}: {why}")
        parse_file_name(name)  # a mistake is told before anything is fetched
        return name
    release, _, category = name.partition("/")
    if release not in RELEASES:
        raise UserError(
            f"{name}: no such release; there are {', '.join(RELEASES)}: see `amazon-electra dumps "
            f"list`"
        )
    known = {c.lower(): c for c in RELEASES[release].reviews}
    if category.lower() not in known:
        raise UserError(
            f"{name}: no such category in {release}; "
            f"see `amazon-electra dumps list --release {release}`"
        )
    return RELEASES[release].address_of(known[category.lower()])
