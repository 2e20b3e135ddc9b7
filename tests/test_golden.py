"""What the jobs make of a few reviews, pinned: rows of a corpus, vocabulary, shards, a small
pre-training and the numbers of a report.

A change of shape leaves all of it as it is. Where a result is meant to change, raise the version of
its stage and pin the new one. Digests are of rows and values, not of Parquet files, whose bytes
change with pyarrow; what floating-point numbers decide is compared to a ten-thousandth.
"""

import hashlib
import json
import random
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from amazon_electra.beam_jobs import shards_job
from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.model import pretrain, vocabulary
from amazon_electra.model.tracking.metrics_log import read_metrics
from tests.beam_jobs.dumps import run_job
from tests.model.report.evaluations import render, write_cells

THINGS = ("kettle", "film", "novel", "razor", "Café au lait", "camera", "board game", "ladder")
GOOD = ("works great", "is wonderful", "made my day", "is worth every cent", "arrived early")
BAD = ("broke after a week", "is a waste of money", "smells odd", "never arrived", "is useless")
MIDDLE = ("is OK", "does what it says", "could be worse")


def write_dump(path: Path) -> Path:
    """Write 400 reviews with what a dump has: markup, run-ons, addresses, copies, broken lines."""
    draw, lines = random.Random(5), []
    for number in range(400):
        stars = draw.choice((1, 2, 3, 4, 5))
        opinions = BAD if stars < 3 else GOOD if stars > 3 else MIDDLE
        thing = draw.choice(THINGS)
        text = f"The {thing} {draw.choice(opinions)}.It {draw.choice(opinions)}, no. {number}! "
        text += draw.choice(("Write to me@example.com.", "I <b>told</b> Mr. Smith &amp; co.", ""))
        review = {
            "reviewerID": f"U{draw.randrange(90)}",
            "asin": f"B{draw.randrange(40):04}",
            "overall": float(stars),
            "reviewText": text,
            "summary": f"{opinions[0].title()}",
            "unixReviewTime": 1_300_000_000 + number * 86_400,
        }
        lines.append(json.dumps(review))
    lines += [lines[3], '{"broken": ', json.dumps({"overall": 5.0, "reviewText": ""})]
    path.write_text("\n".join(lines) + "\n")
    return path


def hash_rows(folder: Path, pattern: str) -> str:
    """Return the first digits of a SHA-256 of all values of Parquet files, with columns' names."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob(pattern)):
        table = pq.read_table(path)
        digest.update(f"{path.name} {table.schema.to_string(show_schema_metadata=False)}".encode())
        for row in table.to_pylist():
            digest.update(repr(row).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def hash_json(content: dict, *left_out: str) -> str:
    """Return the first digits of a SHA-256 of a JSON object without what depends on the machine."""
    kept = {name: value for name, value in content.items() if name not in left_out}
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()[:16]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    dump = write_dump(folder / "dump.jsonl")
    run_job(folder / "corpus", "--input", dump, "--split", "pretrain=60,train=20,dev=10,test=10")
    return folder / "corpus"


@pytest.fixture(scope="module")
def words(corpus) -> Path:
    output = corpus.with_name("vocabulary")
    folders = ["--corpus", str(corpus), "--output", str(output)]
    call_job(vocabulary.train_vocabulary, [*folders, "--size=300", "--unused=10"])
    return output


@pytest.fixture(scope="module")
def shards(corpus, words) -> Path:
    output = corpus.with_name("shards")
    folders = ["--corpus", str(corpus), "--vocabulary", str(words), "--output", str(output)]
    call_job(shards_job.make_shards, [*folders, "--max-length", "32"])
    return output


def test_the_corpus(corpus):
    assert hash_rows(corpus, "corpus-*.parquet") == "5f4aee42915c8bc8"
    assert (
        hashlib.sha256((corpus / "punkt.json").read_bytes()).hexdigest()[:16] == "5272d754ed25c50c"
    )
    result = json.loads((corpus / "corpus.json").read_text())
    names = ("read", "kept", "dropped", "splits", "sentences", "notes")
    assert {name: result[name] for name in names} == {
        "read": 403,
        "kept": 357,
        "dropped": {"broken JSON": 1, "duplicate": 1, "no text": 1, "withheld": 43},
        "splits": {"dev": 37, "pretrain": 202, "test": 43, "train": 75},
        "sentences": 1293,
        "notes": {"emails_masked": 133, "phones_masked": 0},
    }
    assert hash_json(result, "files", "language_sample") == "3a7e26043bf6c598"


def test_a_corpus_of_other_options(corpus, tmp_path):
    dump = corpus.with_name("dump.jsonl")
    options = ["--split-by", "time", "--near-duplicates", "0.7", "--labels", "asin"]
    options += ["--seed", "3", "--title", "false"]
    run_job(tmp_path, "--input", dump, *options, "--mask-personal-data", "false")
    assert hash_rows(tmp_path, "corpus-*.parquet") == "d7c7c4773afa2388"


def test_the_vocabulary(words):
    assert hashlib.sha256((words / "vocab.txt").read_bytes()).hexdigest()[:16] == "2e6f7028cc4e6e0f"
    report = json.loads((words / "vocabulary.json").read_text())
    assert hash_json(report, "seconds", "cpu_seconds", "fingerprint") == "e94b7d756878f1d8"


def test_the_shards(shards):
    assert hash_rows(shards, "shard-*.parquet") == "dd9d975cc71b09af"
    result = json.loads((shards / "shards.json").read_text())
    names = ("sequences", "tokens", "text_tokens", "pieces", "sentences", "fill")
    assert {name: result[name] for name in names} == {
        "sequences": 202,
        "tokens": 5354,
        "text_tokens": 4938,
        "pieces": 208,
        "sentences": 734,
        "fill": 0.82828,
    }


def test_shards_of_general_text(words, tmp_path):
    text = tmp_path / "general.txt"
    things = enumerate(THINGS * 20)
    text.write_text("\n\n".join(f"A {thing} is one. It has {i} parts." for i, thing in things))
    chosen = ["--split", "pretrain=1", "--max-characters", "200000", "--title", "false"]
    run_job(tmp_path / "corpus", "--input", text, "--format", "text", *chosen)
    folders = ["--vocabulary", str(words), "--output", str(tmp_path / "shards")]
    of_text = ["--corpus", str(tmp_path / "corpus"), "--max-length", "32"]
    call_job(shards_job.make_shards, [*folders, *of_text])
    assert hash_rows(tmp_path / "shards", "shard-*.parquet") == "6e2949ecfbf2ea64"


def test_a_pre_training(shards, tmp_path):
    sets = {"layers": 1, "hidden": 32, "intermediate": 64, "embedding": 16, "batch": 8}
    sets |= {"dropout": 0.0, "log_every": 1, "precision": "fp32", "seed": 7}
    folders = ["--shards", str(shards), "--output", str(tmp_path), "--recipe", "sample"]
    given = [f"--{name}={value}" for name, value in sets.items()]
    result = call_job(
        pretrain.pretrain, [*folders, "--device=cpu", "--threads=1", "--steps=6", *given]
    )
    assert [result[name] for name in ("steps", "sequences", "tokens")] == [6, 48, 1291]
    curve = [line["loss"] for line in read_metrics(tmp_path) if "loss" in line]
    assert curve == pytest.approx(
        [39.89393, 38.39041, 36.84196, 35.38337, 34.53368, 34.71310], rel=1e-4
    )
    for name, norm in {"discriminator": 143.8322453017861, "generator": 79.92010044635484}.items():
        weights = load_file(tmp_path / name / "model.safetensors")
        squares = sum(float(np.square(part.astype(np.float64)).sum()) for part in weights.values())
        assert squares == pytest.approx(norm, rel=1e-4), name


def test_the_numbers_of_a_report(tmp_path):
    summary, _ = render(tmp_path, write_cells(tmp_path, {"ours": 0.85, "other": 0.7}))
    reached = {result["arm"]: result["metrics"]["accuracy"] for result in summary.results}
    assert reached["ours"] == pytest.approx(
        {"value": 0.855, "low": 0.8202771475598475, "high": 0.8897228524401525}
    )
    [difference] = summary.differences
    names = ("difference", "low", "high", "p_holm", "examples", "seeds")
    assert {name: difference[name] for name in names} == pytest.approx(
        {
            "difference": 0.16333333333333333,
            "low": 0.12680157408770432,
            "high": 0.19986509257896234,
            "p_holm": 0.0013514218228736895,
            "examples": 400,
            "seeds": 3,
        },
        rel=1e-6,
    )
