"""A shop's own CSV, made of the real reviews in a folder: 5,000 rows with German column names, a
scale of 1 to 10, dates, titles, its own order numbers, and a tenth of the rows in Spanish; and how
long `run` takes on it until each answer, each model and the end.

    python tests/bench/shop.py --reviews ../shared/data/reviews --dump shop.csv
    python tests/bench/shop.py --dump shop.csv --store /tmp/new [--code CHECKOUT] [-- OPTIONS]
"""

import argparse
import csv
import gzip
import io
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

SHOWN = ("corpus", "contrastive-adaptation", "pretraining", "evaluation", "model", "report")
SAMPLE_SECONDS = 1.0
ROWS, SPANISH = 5_000, 500
COLUMNS = ("Bestellnummer", "Artikel", "Datum", "Betreff", "Kommentar", "Note")
ENGLISH = ("mcauley_2023/Books.jsonl", "mcauley_2018/Pet_Supplies.json")
"""Files of JSON lines of the 2023 and 2018 releases."""


def read_reviews(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield item, day, title, text and stars of each review."""
    for name in ENGLISH:
        for line in (folder / name).read_text().splitlines():
            r = json.loads(line)
            seconds = r.get("unixReviewTime") or r["timestamp"] // 1000
            yield {
                "item": r["asin"],
                "day": datetime.fromtimestamp(seconds, UTC),
                "title": r.get("summary", r.get("title", "")),
                "text": r.get("reviewText", r.get("text", "")),
                "stars": int(r.get("overall", r.get("rating"))),
            }


def read_spanish(folder: Path) -> Iterator[dict[str, Any]]:
    data = gzip.decompress((folder / "other/spanish_reviews.csv.gz").read_bytes()).decode()
    for r in csv.DictReader(io.StringIO(data)):
        if r["stars"] in "12345":
            day = datetime(2018, 1, 1, tzinfo=UTC)
            yield {"day": day, "text": r["review"], "stars": int(r["stars"])}


def write_shop(folder: Path, output: Path) -> None:
    """Write the CSV: ten points are five stars or, as often, nine."""
    draw = random.Random(0)
    rows = [*draw.sample(list(read_reviews(folder)), ROWS - SPANISH)]
    rows += draw.sample(list(read_spanish(folder)), SPANISH)
    draw.shuffle(rows)
    with output.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(COLUMNS)
        for number, row in enumerate(rows):
            points = 2 * row["stars"] - draw.randrange(2)
            day = f"{row['day']:%d.%m.%Y}"
            known = [row.get("item"), day, row.get("title"), row["text"]]
            writer.writerow([f"B{10_000 + number}", *known, points])


def run_shop(dump: str, store: Path, code: Path, options: list[str]) -> None:
    """Run a checkout on a dump, and print seconds and CPU seconds until each stage was there."""
    if store.exists():
        sys.exit(f"{store} is there already; a run would continue it")
    module = ["-m", "amazon_electra.flows.cli.main", "run"]
    command = [sys.executable, *module, "--dump", dump, "--store", str(store), *options]
    places = {"PYTHONPATH": str(code / "deploy" / "package")}
    began, used = time.time(), [(time.time(), 0.0)]
    run = psutil.Popen(command, env=os.environ | places, cwd=code)
    while run.poll() is None:
        used.append((time.time(), max(measure_cpu(run), used[-1][1])))
        time.sleep(SAMPLE_SECONDS)
    made = [json.loads(file.read_text()) for file in store.glob("*/*/manifest.json")]
    print(f"{'seconds':>9} {'CPU s':>9}  what")
    for one in sorted(made, key=lambda made: made["finished"]):
        if one["stage"] in SHOWN:
            then = datetime.fromisoformat(one["finished"]).timestamp()
            cpu = next((cpu for at, cpu in used if at >= then), used[-1][1])
            print(f"{then - began:9.1f} {cpu:9.1f}  {one['title']}")
    print(f"{used[-1][0] - began:9.1f} {used[-1][1]:9.1f}  end, exit code {run.returncode}")


def measure_cpu(run: psutil.Process) -> float:
    """Return the CPU seconds of a process and all that it started, over or not."""
    total = 0.0
    with suppress(psutil.Error):
        for process in [run, *run.children(recursive=True)]:
            with suppress(psutil.Error):
                total += sum(process.cpu_times()[:4])  # its own and those of children that are over
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reviews", type=Path, help="folder of real reviews, to write the dump")
    parser.add_argument("--dump", required=True, help="CSV that is written, and run on")
    parser.add_argument("--store", type=Path, help="new folder of the run's results")
    parser.add_argument("--code", type=Path, default=Path(__file__).parents[2], help="checkout")
    parser.add_argument("options", nargs="*", help="options of `run`, after --")
    arguments = parser.parse_args()
    if arguments.reviews:
        write_shop(arguments.reviews, Path(arguments.dump))
    if arguments.store:
        code = arguments.code.resolve()
        run_shop(arguments.dump, arguments.store.resolve(), code, arguments.options)
