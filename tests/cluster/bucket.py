"""Looks into the S3 server from a host that reaches it.

python -m tests.cluster.bucket make|put|list [FOLDER]

`put` copies a folder; `list` prints SHA-256 by name.
"""

import hashlib
import json
import sys
from pathlib import Path

import fsspec

BUCKET = "store"


def main(action: str, folder: str = "") -> None:
    there = fsspec.filesystem("s3")
    if action == "make":
        there.mkdir(BUCKET)
    elif action == "put":
        there.put(f"{folder}/", f"{BUCKET}/{Path(folder).name}/", recursive=True)
    else:
        found = there.find(f"{BUCKET}/{folder}")
        digests = {name: hashlib.sha256(there.cat_file(name)).hexdigest() for name in found}
        print(json.dumps({name.split("/", 2)[2]: text for name, text in digests.items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
