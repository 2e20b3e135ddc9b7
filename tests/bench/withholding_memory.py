"""Memory and speed of withholding: what evaluation files take while they are indexed, and after it.

    python tests/bench/withholding_memory.py --withhold FILE … [--json]

Every worker of the corpus job maps what is kept, and those of a machine share it; what is taken
while it is built, one process does once.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from beam_jobs.deduplication import withholding
from tests.bench.peak_memory import peak_bytes


def measured(files: list[str]) -> dict[str, float]:
    before, cpu = peak_bytes(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        withholding.write_index(files, folder)
        cpu, peak = time.process_time() - cpu, peak_bytes() - before
        kept = sum(path.stat().st_size for path in Path(folder).iterdir())
        texts = len(withholding.load_index(folder).exact)
    return {
        "distinct_texts": texts,
        "peak_bytes_a_text": round(peak / texts),
        "kept_bytes_a_text": round(kept / texts),
        "texts_a_cpu_second": round(texts / cpu),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--withhold", nargs="+", required=True, metavar="FILE", help="evaluation files of any form"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    row = measured(arguments.withhold)
    print(
        json.dumps(row)
        if arguments.json
        else "\n".join(f"{name:20} {value:>12,}" for name, value in row.items())
    )


if __name__ == "__main__":
    main()
