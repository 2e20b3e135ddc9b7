"""One corpus, one vocabulary: on every run, for any number of threads and cut of the files."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.model import vocabulary
from tests.corpus_folder import write_corpus
from tests.refusals import refuses

FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")


@pytest.fixture(scope="module")
def reviews() -> list[list[str]]:
    draw = random.Random(0)
    stems = ["".join(draw.choices("abcdefghij", k=draw.randint(2, 6))) for _ in range(300)]
    rare = [chr(c) for c in range(0x400, 0x460)]

    def write_sentence():
        ends = ["", "s", "ing", "!", " É", *rare[: draw.randint(1, 96)]]
        words = (draw.choice(stems) + draw.choice(ends) for _ in range(12))
        return " ".join(words).capitalize() + "."

    return [[write_sentence() for _ in range(3)] for _ in range(400)]


def train(corpus: Path, output: Path, *more: str) -> dict:
    places = ["--corpus", str(corpus), "--output", str(output)]
    return call_job(vocabulary.train_vocabulary, [*places, "--size", "900", *more])


def test_the_folder_keeps_the_contract(reviews, tmp_path):
    write_corpus(tmp_path / "corpus", reviews)
    result = train(tmp_path / "corpus", tmp_path / "v", "--unused", "10")
    entries = (tmp_path / "v" / "vocab.txt").read_text().splitlines()
    assert entries[:6] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]"]
    assert entries[14] == "[unused9]"
    assert len(entries) == len(set(entries)) == result["size"] <= 900
    assert result["reviews"] == 400
    assert json.loads((tmp_path / "v" / "vocabulary.json").read_text()) == result
    tokenizer = Tokenizer.from_file(str(tmp_path / "v" / "tokenizer.json"))
    assert tokenizer.get_vocab() == {entry: i for i, entry in enumerate(entries)}
    assert tokenizer.encode("a", "b").type_ids == [0, 0, 0, 1, 1]
    theirs = AutoTokenizer.from_pretrained(tmp_path / "v")
    for text in (reviews[0][0], "Ünknown wörds! [MASK] \u200b你好", "A" * 150):
        assert theirs(text)["input_ids"] == tokenizer.encode(text).ids
    assert (theirs.model_max_length, theirs.mask_token_id, theirs.pad_token_id) == (512, 4, 0)


@pytest.mark.parametrize("threads", ["1", "4"])
def test_same_bytes_in_another_process(reviews, tmp_path, threads):
    train(write_corpus(tmp_path / "one", reviews), tmp_path / "v1")
    write_corpus(tmp_path / "many", reviews[::-1], files=7)
    words = ["--corpus", str(tmp_path / "many"), "--output", str(tmp_path / "v2"), "--size", "900"]
    environment = {"RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
    environment |= {"TOKENIZERS_PARALLELISM": "true"}
    command = [sys.executable, "-m", "amazon_electra.model.vocabulary", *words]
    subprocess.run(command, env=os.environ | environment, check=True)
    for name in FILES:
        assert (tmp_path / "v1" / name).read_bytes() == (tmp_path / "v2" / name).read_bytes()


def test_only_the_pretrain_split_is_seen(reviews, tmp_path):
    write_corpus(tmp_path / "corpus", reviews)
    train(tmp_path / "corpus", tmp_path / "v1")
    held_out = write_corpus(tmp_path / "held_out", [["zyzzyva qqqq"] * 50] * 50, split="test")
    (held_out / "corpus-00000.parquet").rename(tmp_path / "corpus" / "corpus-00001.parquet")
    train(tmp_path / "corpus", tmp_path / "v2")
    first, second = ((tmp_path / name / "vocab.txt").read_bytes() for name in ("v1", "v2"))
    assert first == second


def test_a_sample_is_of_texts_not_of_files(reviews, tmp_path):
    sample = ("--sample_reviews", "100")
    one = train(write_corpus(tmp_path / "one", reviews), tmp_path / "v1", *sample)
    cut = write_corpus(tmp_path / "many", reviews[::-1], files=5)
    many = train(cut, tmp_path / "v2", *sample)
    assert 60 < one["reviews"] < 140
    for name in ("reviews", "sentences", "fingerprint"):
        assert one[name] == many[name]


@pytest.mark.parametrize(("lower_case", "expected"), [("true", ["e", "e"]), ("false", ["É", "é"])])
def test_case_and_accents(tmp_path, lower_case, expected):
    write_corpus(tmp_path / "corpus", [["É é É é"]] * 10)
    train(tmp_path / "corpus", tmp_path / "v", "--lower_case", lower_case)
    tokenizer = Tokenizer.from_file(str(tmp_path / "v" / "tokenizer.json"))
    assert tokenizer.encode("É é", add_special_tokens=False).tokens == expected


@pytest.mark.parametrize(
    ("option", "value"),
    [("--size", "20"), ("--unused", "-1"), ("--sample_reviews", "0"), ("--corpus", "/nowhere")],
)
def test_refusals_of_options(reviews, tmp_path, option, value):
    write_corpus(tmp_path / "corpus", reviews[:3])
    with refuses(value):
        train(tmp_path / "corpus", tmp_path / "v", option, value)


def test_a_broken_corpus_is_refused(reviews, tmp_path):
    corpus = write_corpus(tmp_path / "c", reviews)
    file = next(corpus.glob("corpus-*.parquet"))
    file.write_bytes(file.read_bytes()[:-100])
    with refuses(file.name):
        train(corpus, tmp_path / "v")
    (corpus / "corpus.json").unlink()
    with refuses("corpus.json"):
        train(corpus, tmp_path / "v")
