"""Small dumps for the tests of the data path, and what was made of them read back."""

import gzip
import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from beam_jobs import corpus_job

WORDS = """the a it this phone case works great bad broke love hate price good cheap money my wife dog after day two very
    not Dr. U.S. e.g. battery screen husband said would buy again never ever really quite small large""".split()  # noqa


def text_of(number: int, sentences: int = 3) -> str:
    """A text of its own for every number."""
    rng = random.Random(number)
    parts = [
        " ".join(rng.choices(WORDS, k=rng.randint(3, 12))).capitalize() for _ in range(sentences)
    ]
    return f"Item {number} arrived. " + " ".join(part + rng.choice(".!?") for part in parts)


def review(number: int, text: Any = None, **fields: Any) -> dict[str, Any]:
    """A record of the 2018 release."""
    record = {
        "overall": 1.0 + number % 5,
        "verified": number % 2 == 0,
        "reviewerID": f"U{number}",
        "asin": "B01",
    }
    return (
        record
        | {"unixReviewTime": number, "reviewText": text_of(number) if text is None else text}
        | fields
    )


def write_lines(path: Path, records: list[Any]) -> Path:
    """JSON lines; strings and bytes go in as they are. gz if the name says so."""
    lines = [
        r if isinstance(r, bytes) else r.encode() if isinstance(r, str) else json.dumps(r).encode()
        for r in records
    ]
    content = b"".join(line + b"\n" for line in lines)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def run_job(output: Path, *arguments: Any, mode: str = "in_memory") -> dict[str, Any]:
    """Runs the job within this process and checks what always holds."""
    argv = [*map(str, arguments), "--output", str(output), f"--direct_running_mode={mode}"]
    result = corpus_job.run(
        [*argv, "--direct_num_workers=2"] if mode == "multi_processing" else argv
    )
    assert result["read"] == result["kept"] + sum(result["dropped"].values())
    assert result["kept"] == len(rows_of(output)) == sum(result["splits"].values())
    assert not [p for p in output.iterdir() if p.name.startswith(("_", "."))]
    return result


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [
        row
        for path in sorted(folder.glob("corpus-*.parquet"))
        for row in pq.read_table(path).to_pylist()
    ]


def texts_in(folder: Path) -> list[str]:
    return [" ".join(row["sentences"]) for row in rows_of(folder)]


def rejects_of(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for p in sorted(folder.glob("rejects/*.jsonl"))
        for line in p.read_text().splitlines()
    ]


def digests(folder: Path) -> dict[str, str]:
    """Of every file that must not depend on how the job was run."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != "corpus.json"]
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def shared_data() -> Path:
    """The real files, or a skip where they are not."""
    root = Path(__file__).parent.parent.parent
    for place in (root.parent / "shared" / "data", root / "shared" / "data"):
        if place.is_dir():
            return place
    pytest.skip("the real reviews of shared/data are not here")
