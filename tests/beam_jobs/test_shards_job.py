"""From a corpus folder to shards: the contract, whatever the runner and what happened before."""

import hashlib
import itertools
import json
import random
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from amazon_electra.beam_jobs import shards_job
from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.beam_jobs.core.special_tokens import SHARDS_VERSION
from amazon_electra.beam_jobs.engine import beam_options
from amazon_electra.beam_jobs.packing import shards
from amazon_electra.beam_jobs.packing.shards import VOCABULARY_FILES
from tests.beam_jobs.dumps import run_shard_steps
from tests.corpus_folder import write_corpus
from tests.refusals import refuses
from tests.tokenizer_kinds import MIXER_WORDS


@pytest.fixture(scope="module")
def reviews() -> list[list[str]]:
    draw = random.Random(0)

    def sentence():
        words = [*MIXER_WORDS[:8], "Weeks", "café"]
        return " ".join(draw.choice(words) for _ in range(draw.randint(2, 14))) + "."

    return [[sentence() for _ in range(draw.randint(1, 8))] for _ in range(600)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, reviews) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"), reviews, files=3)


@pytest.fixture(autouse=True)
def small_units(monkeypatch):
    monkeypatch.setattr(shards, "MIN_UNIT_ROWS", 150)


def job(corpus: Path, vocabulary: Path, output: Path, *more: str) -> dict:
    given = {"--corpus": corpus, "--vocabulary": vocabulary, "--max_length": 64, "--output": output}
    given |= dict(zip(more[::2], more[1::2], strict=True))
    return run_shard_steps([str(word) for pair in given.items() for word in pair])


def digests(output: Path) -> dict[str, str]:
    return {
        p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(output.glob("shard-*"))
    }


def test_shards_hold_the_reviews_and_say_so(corpus, vocabulary, reviews, tmp_path):
    result = job(corpus, vocabulary, tmp_path)
    tokenizer = Tokenizer.from_file(str(vocabulary / "tokenizer.json"))
    expected = [tokenizer.encode(" ".join(r), add_special_tokens=False).ids for r in reviews]
    found, footers = [], []
    for shard in sorted(tmp_path.glob("shard-*.parquet")):
        footers.append(json.loads(pq.read_metadata(shard).metadata[b"amazon_electra"]))
        for row in pq.read_table(shard).to_pylist():
            assert len(row["input_ids"]) <= 64
            starts = [*row["document_starts"], len(row["input_ids"])]
            found += [tuple(row["input_ids"][a + 1 : b - 1]) for a, b in itertools.pairwise(starts)]
    assert sum(map(len, found)) == sum(map(len, expected)) == result["text_tokens"]
    assert {tuple(ids) for ids in expected if len(ids) <= 62} <= set(found)
    for key in ("sequences", "tokens", "documents", "sentences"):
        assert result[key] == sum(footer[key] for footer in footers)
    assert result["documents"] == len(reviews)
    assert result["sentences"] == sum(map(len, reviews))
    assert result["shards"] == len(footers) == 3
    for name in VOCABULARY_FILES:
        assert (tmp_path / "vocabulary" / name).read_bytes() == (vocabulary / name).read_bytes()
    content = (vocabulary / "tokenizer.json").read_bytes()
    about = {
        "version": SHARDS_VERSION,
        "max_length": 64,
        "vocabulary_size": 16,
        "vocabulary_fingerprint": hashlib.sha256(content).hexdigest(),
    }
    assert all(about.items() <= footer.items() for footer in footers)
    assert json.loads((tmp_path / "shards.json").read_text()) == result


def test_a_step_of_the_graph_writes_the_totals_where_no_command_waits(
    corpus, vocabulary, tmp_path, monkeypatch
):
    """As of a template."""
    expected = job(corpus, vocabulary, tmp_path / "local")
    monkeypatch.setattr(shards_job, "is_staged_only", lambda options: True)
    monkeypatch.setattr(beam_options, "is_staged_only", lambda options: True)
    words = ["--corpus", str(corpus), "--vocabulary", str(vocabulary), "--max_length", "64"]
    words += ["--output", str(tmp_path / "engine"), "--direct_running_mode", "in_memory"]
    assert "staged" in call_job(shards_job.make_shards, words)
    assert json.loads((tmp_path / "engine" / "shards.json").read_text()) == expected
    assert digests(tmp_path / "engine") == digests(tmp_path / "local")


def test_an_interrupted_run_is_continued(corpus, vocabulary, tmp_path):
    job(corpus, vocabulary, tmp_path)
    before = digests(tmp_path)
    first, second, third = sorted(tmp_path.glob("shard-*"))
    written_at = first.stat().st_mtime_ns
    second.unlink()
    third.write_bytes(third.read_bytes()[:1000])
    (tmp_path / ".shard-00001.parquet.123.tmp").write_bytes(b"half")
    job(corpus, vocabulary, tmp_path)
    assert digests(tmp_path) == before
    assert first.stat().st_mtime_ns == written_at
    assert sorted(p.name for p in tmp_path.iterdir()) == [*before, "shards.json", "vocabulary"]


def test_another_split_and_texts_of_no_token(vocabulary, tmp_path):
    write_corpus(tmp_path / "corpus", [["The mixer."], ["\u200b"]], split="dev")
    assert (
        job(tmp_path / "corpus", vocabulary, tmp_path / "dev", "--split", "dev")["empty_documents"]
        == 1
    )
    with refuses("split"):
        job(tmp_path / "corpus", vocabulary, tmp_path / "pretrain")


def test_a_sample_is_of_the_first_units_and_may_be_empty(vocabulary, reviews, tmp_path):
    """As of the dev reviews on which a pre-training is measured."""
    corpus = write_corpus(tmp_path / "corpus", reviews, files=3, split="dev")
    asked = ["--split", "dev", "--sample_reviews"]
    whole = job(corpus, vocabulary, tmp_path / "whole", "--split", "dev")
    first = job(corpus, vocabulary, tmp_path / "first", *asked, "201")
    assert (whole["documents"], first["documents"]) == (600, 400)
    made = digests(tmp_path / "first")
    assert list(made) == ["shard-00000.parquet", "shard-00001.parquet"]
    assert made.items() <= digests(tmp_path / "whole").items()
    assert job(corpus, vocabulary, tmp_path / "all", *asked, "5000")["documents"] == 600
    for name, rows, split in (("none", reviews[:9], "train"), ("no token", [["\u200b"]], "dev")):
        other = write_corpus(tmp_path / f"corpus with {name}", rows, split=split)
        empty = job(other, vocabulary, tmp_path / name, *asked, "5")
        assert (empty["sequences"], empty["fill"]) == (0, 0)


def test_a_corpus_that_is_not_whole_leaves_no_result(corpus, vocabulary, tmp_path):
    job(corpus, vocabulary, tmp_path / "out")
    broken = shutil.copytree(corpus, tmp_path / "broken")
    (broken / "corpus.json").write_text(json.dumps({"splits": {"pretrain": 2}}))
    with refuses("corpus.json"):
        job(broken, vocabulary, tmp_path / "out")
    (broken / "corpus.json").write_text("{}")  # as an early version wrote it
    with refuses(field="corpus"):
        job(broken, vocabulary, tmp_path / "out")
    next(broken.glob("corpus-*.parquet")).write_bytes(b"PAR1 not really")
    with refuses("corpus-"):
        job(broken, vocabulary, tmp_path / "out")
    assert not (tmp_path / "out" / "shards.json").exists()
    (broken / "corpus.json").unlink()
    with refuses("corpus.json"):
        job(broken, vocabulary, tmp_path / "out")


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        (["--max_length", "8"], "max-length"),
        (["--corpus", "/nowhere"], "corpus"),
        (["--vocabulary", "/nowhere"], "vocabulary"),
    ],
)
def test_mistakes_are_named(corpus, vocabulary, tmp_path, broken, named):
    with refuses(named):
        job(corpus, vocabulary, tmp_path, *broken)


def test_only_its_own_files_are_cleared(corpus, vocabulary, tmp_path):
    (tmp_path / "out" / "shard-mine").mkdir(parents=True)
    (tmp_path / "out" / "shard-mine.txt").write_text("mine")
    (tmp_path / "out" / "shard-99999.parquet").write_text("of a killed worker")
    job(corpus, vocabulary, tmp_path / "out")
    assert (tmp_path / "out" / "shard-mine.txt").read_text() == "mine"
    assert not (tmp_path / "out" / "shard-99999.parquet").exists()


@pytest.mark.parametrize("content", ["{}", '{"model": {"type": "BPE", "vocab": {}, "merges": []}}'])
def test_a_tokenizer_that_is_no_encoders_is_a_mistake(corpus, vocabulary, tmp_path, content):
    shutil.copytree(vocabulary, tmp_path / "v")
    (tmp_path / "v" / "tokenizer.json").write_text(content)
    job(corpus, vocabulary, tmp_path / "out")
    with refuses("tokenizer.json"):
        job(corpus, tmp_path / "v", tmp_path / "out")
    assert (tmp_path / "out" / "shards.json").exists()
