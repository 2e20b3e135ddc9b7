"""A dump in German and Japanese, from a multilingual encoder in transformers' own module: adapted,
fine-tuned, scored, and gone on with by a later dump.
"""

import csv
import json
import random
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer
from transformers import pipeline

from amazon_electra.flows.store.store import Store
from tests.model.encoders.checkpoints import write_kind
from tests.served import electra

GERMAN = [
    "Der Deckel war kaputt.",
    "Das ist nicht zu empfehlen!",
    "Die Farbe ist aber großartig.",
    "Der Wasserkocher war schlecht.",
    "Überhaupt nicht schön!",
    "Der Farbe fehlt die Qualität.",
]
JAPANESE = [
    "このケトルはとても良いです。",
    "蓋がすぐに壊れました。",
    "買って良かった!",
    "色もきれいです。",
    "ケトルが壊れました。",
    "とても良かった!",
]


def write_review(draw: random.Random, number: int) -> str:
    """A text like no other, with sentences in any order."""
    sentences = (GERMAN, JAPANESE)[number % 2]
    return " ".join([*draw.sample(sentences, 4), f"{number}!"])


pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

POSITIONS = 78
"""Of the tiny encoder; the recipe asks for 128."""


def write_dump(file: Path, reviews: range) -> Path:
    draw = random.Random(reviews.start)
    with file.open("w", encoding="utf-8", newline="") as lines:
        rows = csv.writer(lines)
        rows.writerow(["stars", "text"])
        rows.writerows([1 + number % 5, write_review(draw, number)] for number in reviews)
    return file


def find_results(store: Store, stage: str) -> list[dict]:
    return [made["result"] for made in store.list_manifests() if made["stage"] == stage]


def test_a_dump_in_two_languages_goes_all_the_way_with_an_encoder_that_reads_both(tmp_path):
    first, second = (
        write_dump(tmp_path / f"{reviews.start}.csv", reviews)
        for reviews in (range(240), range(300, 420))
    )
    published = write_kind(tmp_path / "tiny-xlm-r", "XLM-R")
    (published / "README.md").write_text("---\nlicense: mit\nlanguage: de\n---\n")
    where, store = ["--store", tmp_path / "store"], Store(tmp_path / "store")
    small = ("pretraining.steps=6", "finetuning.arms=pre-trained", "finetuning.tasks=polarity")
    sets = [f"--{setting}" for setting in (*small, "finetuning.seeds=0")]
    batch = ["--pretraining.batch", "8"]
    ran = electra("run", "--dump", first, "--start-from", published, *where, *sets, *batch)
    assert ran.returncode == 0, ran.stderr

    [corpus] = find_results(store, "corpus")
    assert corpus["language_sample"].keys() == {"de", "ja"}
    assert find_results(store, "shards")[0]["max_length"] == POSITIONS
    for shard in (tmp_path / "store" / "shards").glob("*/shard-*.parquet"):
        tokenizer = Tokenizer.from_file(str(shard.parent / "vocabulary" / "tokenizer.json"))
        rows = pq.read_table(shard)["input_ids"].to_pylist()
        assert tokenizer.token_to_id("<unk>") not in set().union(*rows)

    report = Path(re.search(r"^report +(\S+)$", ran.stdout, re.M)[1]).read_text()
    assert "Languages, by" in report
    assert "of the reviews are in the language ja, and tiny-xlm-r reads de" in report
    model = Path(re.search(r"^model +(\S+)$", ran.stdout, re.M)[1])
    assert "tiny-xlm-r" in (model / "README.md").read_text()
    classify = pipeline("text-classification", model=str(model), truncation=True)
    assert classify("Der Deckel war kaputt. 蓋がすぐに壊れました。")[0]["label"]

    scored = electra(
        *["score", "--dump", second, "--model", model, "--output", tmp_path / "scores"],
        *[*where, "--format", "jsonl"],
    )
    assert scored.returncode == 0, scored.stderr
    [file] = (tmp_path / "scores").rglob("*.jsonl")
    labels = [json.loads(line)["label"] for line in file.read_text("utf-8").splitlines()]
    assert len(labels) == 120
    assert set(labels) <= {"negative", "positive"}

    again = ["--start-from", "last", *where, *sets, *batch]
    continued = electra("run", "--dump", first, second, *again)
    assert continued.returncode == 0, continued.stderr
    assert len(find_results(store, "pretraining")) == 2
    assert max(one["read"] for one in find_results(store, "corpus")) == 360
