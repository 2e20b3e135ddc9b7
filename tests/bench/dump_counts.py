"""What the corpus job makes of files of reviews, one by one: a Markdown table of counts whose sums
are checked.

    python tests/bench/dump_counts.py ../shared/data/reviews/*/* [--columns
    FILE_NAME:text=NAME,stars=NAME]

And, with `--leaks CORPUS --withhold FILE…`, a proof on a finished corpus: no text on two sides of
the split, no text of the evaluation files in it, exactly or nearly. Ends with 1 if there is one.
"""

import argparse
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
import pyarrow.dataset as ds

from beam_jobs import corpus_job
from beam_jobs.config import CorpusOptions
from beam_jobs.deduplication import withholding
from beam_jobs.job import storage
from beam_jobs.job.command import redirect_stdout_to_stderr
from beam_jobs.job.errors import UserError
from beam_jobs.job.settings import read_options
from beam_jobs.reading.work_units import list_dump_files

HEADER = (
    "| file | format found | read | kept | dropped by reason | stars 1–5, none | notes |\n"
    "|---|---|---|---|---|---|---|"
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, help="each is a dump of its own")
    parser.add_argument(
        "--columns",
        action="append",
        default=[],
        metavar="FILE:FIELD=NAME,…",
        help="of files that need it",
    )
    parser.add_argument("--leaks", metavar="CORPUS", help="a finished corpus to look for leaks in")
    parser.add_argument(
        "--withhold", nargs="*", default=[], metavar="GLOB", help="the evaluation files it withheld"
    )
    args = parser.parse_args()
    columns = dict(given.split(":", 1) for given in args.columns)
    if args.files:
        print(HEADER)
    for file in args.files:
        print(row_of(file, columns.get(file.name)), flush=True)
    leaks = leaks_in(Path(args.leaks), args.withhold) if args.leaks else {}
    for what, count in leaks.items():
        print(f"{what}: {count}")
    return int(any(count for what, count in leaks.items() if what.startswith("leak")))


def row_of(file: Path, columns: str | None) -> str:
    extra = ["--columns", columns] if columns else []
    with tempfile.TemporaryDirectory() as folder, redirect_stdout_to_stderr():
        arguments = ["--input", str(file), "--output", folder, *extra]
        try:
            layout = list_dump_files(read_options(CorpusOptions, arguments, "", ""))[0].layout
            result = corpus_job.run([*arguments, "--direct_running_mode=in_memory"])
        except UserError as mistake:
            return f"| {file.name} | refused: {mistake} | | | | | |"
        stars = stars_in(Path(folder))
    dropped = result["dropped"]
    assert (
        result["read"]
        == result["kept"] + sum(dropped.values())
        == sum(dropped.values()) + sum(stars.values())
    )
    known = " · ".join(str(stars.get(n, 0)) for n in (1, 2, 3, 4, 5, None))
    name = (
        f"{layout.name} ({'TSV' if layout.delimiter == chr(9) else 'CSV'})"
        if layout.columns
        else layout.name
    )
    return (
        f"| {file.parent.name}/{file.name} | {name} | {result['read']:,} | {result['kept']:,} "
        f"| {listed(dropped)} | {known} | {listed(result['notes'])} |"
    )


def listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in counts.items() if n) or "–"


def stars_in(corpus: Path) -> dict[int | None, int]:
    found = (
        ds.dataset(sorted(map(str, corpus.glob("corpus-*.parquet"))))
        .to_table(["stars"])["stars"]
        .value_counts()
    )
    return {entry["values"]: entry["counts"] for entry in found.to_pylist()}


def leaks_in(corpus: Path, evaluation: list[str]) -> dict[str, int]:
    """Counts by what they say; those that must be 0 begin with "leak"."""
    paths = storage.expand_patterns(evaluation, "--withhold") if evaluation else []
    with tempfile.TemporaryDirectory() as folder:
        withholding.write_index(paths, folder)
        withheld = withholding.load_index(folder)
    sides: dict[bytes, set[str]] = defaultdict(set)
    counts = {"reviews": 0, "evaluation texts": len(withheld.exact)}
    exact = near = 0
    for batch in ds.dataset(sorted(map(str, corpus.glob("corpus-*.parquet")))).to_batches():
        rows: dict[str, list[Any]] = batch.select(["text_hash", "split", "sentences"]).to_pydict()
        texts = [" ".join(sentences) for sentences in rows["sentences"]]
        for text_hash, side in zip(rows["text_hash"], rows["split"], strict=True):
            sides[text_hash].add(side)
        found = withheld.find_withheld(texts)
        exact, near = exact + int(found[0].sum()), near + int(found[1].sum())
        counts["reviews"] += len(texts)
    return counts | {
        "leaks: texts on two sides": sum(len(found) > 1 for found in sides.values()),
        "leaks: texts twice in the corpus": counts["reviews"] - len(sides),
        "leaks: evaluation texts in the corpus, exact": exact,
        "leaks: evaluation texts in the corpus, near": near,
    }


if __name__ == "__main__":
    sys.exit(main())
