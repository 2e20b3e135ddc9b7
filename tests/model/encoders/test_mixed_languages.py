"""A dump in German and Japanese through the corpus job into shards of a multilingual encoder."""

import csv
import itertools
import json
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from amazon_electra.beam_jobs import corpus_job
from amazon_electra.model.encoders.origin import write_origin
from amazon_electra.model.vocabulary import ReviewSample, measure_fit
from tests.beam_jobs.dumps import run_shard_steps
from tests.model.encoders.published_kinds import write_kind

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


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    with (folder / "dump.csv").open("w", encoding="utf-8", newline="") as file:
        rows, draw = csv.writer(file), random.Random(0)
        rows.writerow(["stars", "text"])
        for number in range(120):
            rows.writerow([1 + number % 5, write_review(draw, number)])
    corpus_job.run(["--input", str(folder / "dump.csv"), "--output", str(folder / "corpus")])
    write_origin(str(write_kind(folder / "published", "XLM-R")), folder / "origin")
    places = ["--corpus", str(folder / "corpus"), "--vocabulary", str(folder / "origin")]
    run_shard_steps([*places, "--output", str(folder / "shards"), "--max_length", "64"])
    return folder


def test_sentences_are_cut_and_no_token_is_unknown(made):
    tokenizer = Tokenizer.from_file(str(made / "shards" / "vocabulary" / "tokenizer.json"))
    texts = []
    for shard in sorted((made / "shards").glob("shard-*.parquet")):
        for row in pq.read_table(shard).to_pylist():
            assert tokenizer.token_to_id("<unk>") not in row["input_ids"]
            ends = [*row["sentence_starts"], len(row["input_ids"])]
            for start, end in itertools.pairwise(ends):
                texts.append(tokenizer.decode(row["input_ids"][start:end]).strip())
    assert {*GERMAN, *JAPANESE} <= set(texts)


def test_words_of_both_languages_are_counted(made):
    """A CJK character that no space separates is a word, as in the corpus."""
    tokenizer = Tokenizer.from_file(str(made / "origin" / "tokenizer.json"))
    fit = measure_fit(tokenizer, ReviewSample(made / "corpus", "pretrain", 1_000))
    counts = json.loads((made / "corpus" / "corpus.json").read_text())
    assert counts["language_sample"].keys() == {"de", "ja"}
    splits = counts["splits"]
    assert fit["unknown_rate"] == 0
    assert fit["words"] / splits["pretrain"] > 16
