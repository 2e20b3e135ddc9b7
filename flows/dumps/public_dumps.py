"""Public review dumps by release and category (public_dumps.yaml), and the commands that fetch
them. An interrupted download continues by the same command; what is cut off or damaged all the
same is noticed when it is read (beam_jobs/reading/compression.py).
"""

import shlex
from pathlib import Path
from typing import Any

import yaml

HUB = "hf://datasets/"
FOLDER = "dumps"
"""Where the commands put what they fetch."""


def read_releases() -> dict[str, dict[str, Any]]:
    """Return release → about, address, reviews: category → how many, None where it is not known."""
    releases = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    for release in releases.values():
        if other := release.pop("categories_of", ""):
            release["reviews"] = dict.fromkeys(releases[other]["reviews"])
    return dict(releases)


def spell_command(address: str, category: str) -> str:
    """Return the command that fetches a category of a release from its address."""
    address = address.format(category=category)
    if address.startswith(HUB):
        owner, repository, file = address.removeprefix(HUB).split("/", 2)
        words = ["hf", "download", f"{owner}/{repository}", file, "--repo-type", "dataset"]
        return shlex.join([*words, "--local-dir", FOLDER])
    file = f"{FOLDER}/{address.rpartition('/')[2]}"
    words = ["curl", "--fail", "--location", "--retry", "8", "--continue-at", "-"]
    return shlex.join([*words, "--create-dirs", "--output", file, address])
