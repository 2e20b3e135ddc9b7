"""General text for the control arm: blocks or lines, plain or packed, to the same shards."""

import bz2
import gzip
import hashlib
import io
import itertools
import json
import lzma
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from beam_jobs import corpus_job, shards_job
from beam_jobs.core.errors import UserError
from beam_jobs.packing import general_text
from tests.beam_jobs.dumps import run_shard_steps
from tests.beam_jobs.test_shards_job import vocabulary  # noqa: F401

BLOCKS = ["The mixer works. Great!", "The mixer\nbroke after a week.", "a week & a week"]
AS_BLOCKS = "\n\n" + "\n \n\n".join(BLOCKS) + "\n"
AS_LINES = "\n".join(block.replace("\n", " ") for block in BLOCKS)


def job(output: Path, vocabulary: Path, *sources: Path) -> dict:  # noqa: F811
    words = [
        "--general_text",
        *map(str, sources),
        "--vocabulary",
        str(vocabulary),
        "--output",
        str(output),
    ]
    return run_shard_steps([*words, "--max_length", "64"])


def documents(output: Path) -> list[tuple[int, ...]]:
    found = []
    for shard in sorted(output.glob("shard-*.parquet")):
        for row in pq.read_table(shard).to_pylist():
            starts = [*row["document_starts"], len(row["input_ids"])]
            found += [tuple(row["input_ids"][a + 1 : b - 1]) for a, b in itertools.pairwise(starts)]
    return sorted(found)


def packed(text: str, how: str) -> bytes:
    raw = text.encode()
    if how == "zip":
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("folder/", "")
            archive.writestr("folder/a.txt", raw)
        return buffer.getvalue()
    return {"plain": bytes, "gz": gzip.compress, "bz2": bz2.compress}[how](raw)


@pytest.mark.parametrize("how", ["plain", "gz", "bz2", "zip"])
@pytest.mark.parametrize("text", [AS_BLOCKS, AS_LINES, AS_BLOCKS.replace("\n", "\r\n")])
def test_every_packing_gives_the_same_documents(vocabulary, tmp_path, how, text):  # noqa: F811
    source = tmp_path / "text"
    source.write_bytes(packed(text, how))
    result = job(tmp_path / "out", vocabulary, source)
    tokenizer = Tokenizer.from_file(str(vocabulary / "tokenizer.json"))
    expected = [tuple(tokenizer.encode(block, add_special_tokens=False).ids) for block in BLOCKS]
    assert documents(tmp_path / "out") == sorted(expected)
    assert result["documents"] == 3


def test_large_plain_files_are_cut_between_documents(vocabulary, tmp_path, monkeypatch):  # noqa: F811
    for name, text in (("blocks", AS_BLOCKS * 40), ("lines", (AS_LINES + "\n") * 40)):
        source = tmp_path / name
        source.write_text(text)
        job(tmp_path / f"{name}-whole", vocabulary, source)
        with monkeypatch.context() as patch:
            patch.setattr(general_text, "UNIT_BYTES", 500)
            result = job(tmp_path / f"{name}-cut", vocabulary, source)
        assert result["shards"] > 3
        assert result["documents"] == 120
        assert documents(tmp_path / f"{name}-cut") == documents(tmp_path / f"{name}-whole")


def test_the_same_bytes_again_and_continued(vocabulary, tmp_path):  # noqa: F811
    source = tmp_path / "text"
    source.write_text(AS_BLOCKS * 10)

    def digest():
        return [
            hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted((tmp_path / "out").glob("shard-*"))
        ]

    job(tmp_path / "out", vocabulary, source)
    first, written_at = digest(), (tmp_path / "out" / "shard-00000.parquet").stat().st_mtime_ns
    job(tmp_path / "out", vocabulary, source)
    assert digest() == first
    assert (tmp_path / "out" / "shard-00000.parquet").stat().st_mtime_ns == written_at
    source.write_text(AS_BLOCKS * 11)
    assert job(tmp_path / "out", vocabulary, source)["documents"] == 33


def test_punkt_is_trained_once_for_a_text(vocabulary, tmp_path, monkeypatch):  # noqa: F811
    source, trained = tmp_path / "text", []
    source.write_text(AS_BLOCKS * 10)
    train = general_text.train_punkt
    monkeypatch.setattr(
        general_text, "train_punkt", lambda units: trained.append(units) or train(units)
    )
    job(tmp_path / "out", vocabulary, source)
    job(tmp_path / "out", vocabulary, source)
    assert len(trained) == 1
    source.write_text(AS_BLOCKS * 11)
    job(tmp_path / "out", vocabulary, source)
    assert len(trained) == 2
    (tmp_path / "given.json").write_bytes((tmp_path / "out" / "punkt.json").read_bytes())
    words = [
        "--general_text",
        str(source),
        "--vocabulary",
        str(vocabulary),
        "--output",
        str(tmp_path / "out"),
    ]
    shards_job.run(
        [*words, "--punkt", str(tmp_path / "given.json"), "--direct_running_mode", "in_memory"]
    )
    assert len(trained) == 2


def test_the_shards_name_what_was_withheld(vocabulary, tmp_path):  # noqa: F811
    (tmp_path / "text").write_text(AS_LINES)
    (tmp_path / "own.csv").write_text("said\nThe mixer works. Great!\n")
    words = [
        "--general_text",
        str(tmp_path / "text"),
        "--withhold",
        str(tmp_path / "own.csv"),
        "--max_length",
        "64",
    ]
    words += ["--vocabulary", str(vocabulary), "--output", str(tmp_path / "out")]
    result = shards_job.run([*words, "--direct_running_mode", "in_memory"])
    assert (result["documents"], result["empty_documents"]) == (2, 1)
    sha256 = hashlib.sha256((tmp_path / "own.csv").read_bytes()).hexdigest()
    assert result["made_of"] == {"corpus": "", "withheld": [f"own.csv {sha256[:16]}"]}


def test_the_dev_and_test_reviews_of_a_corpus_stay_out(vocabulary, tmp_path):  # noqa: F811
    dump = tmp_path / "dump.json"
    reviews = [
        f"Number {i} of these works as well as number {i + 1} did. I like all {i} of them."
        for i in range(60)
    ]
    dump.write_text("\n".join(json.dumps({"reviewText": text, "overall": 5}) for text in reviews))
    split = ["--split", "pretrain=40,train=20,dev=20,test=20", "--direct_running_mode", "in_memory"]
    counts = corpus_job.run(["--input", str(dump), "--output", str(tmp_path / "corpus"), *split])[
        "splits"
    ]
    others = ["An encyclopaedia says of number 7 that it follows 6.", "It is a number."]
    (tmp_path / "text").write_text("\n".join([*others, *reviews]))
    words = [
        "--general_text",
        str(tmp_path / "text"),
        "--withhold_corpus",
        str(tmp_path / "corpus"),
    ]
    words += [
        "--vocabulary",
        str(vocabulary),
        "--output",
        str(tmp_path / "out"),
        "--max_length",
        "64",
    ]
    result = shards_job.run([*words, "--direct_running_mode", "in_memory"])
    assert counts["dev"] > 0 < counts["test"]
    assert result["empty_documents"] == counts["dev"] + counts["test"]
    assert result["documents"] == len(others) + counts["pretrain"] + counts["train"]
    sha256 = hashlib.sha256((tmp_path / "corpus" / "corpus.json").read_bytes()).hexdigest()
    assert result["made_of"] == {"corpus": "", "withheld": [], "withheld_corpus": sha256}
    with pytest.raises(
        UserError, match=r"--withhold-corpus: no corpus-\*.parquet in .*corpus_job wrote"
    ):
        shards_job.run([*words, "--withhold_corpus", str(tmp_path)])


def test_text_that_is_not_utf8_is_read(tmp_path):
    (tmp_path / "text").write_bytes("café\n".encode("cp1252"))
    (unit,) = general_text.plan_text_units([str(tmp_path / "text")], str(tmp_path), None)
    assert [w.to_pylist() for w in unit.read_windows("pretrain")] == [[["café"]]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no text in these files"),
        (gzip.compress(b"a b c" * 999)[:30], "damaged"),
        (b"PK\x03\x04 no", "zip"),
        (lzma.compress(b"a b c"), "xz -d"),
        (bytes(range(256)) * 9, "binary"),
        (b"PAR1" + bytes(99), "Parquet"),
        (("words " * 99).encode("utf-16-le"), "iconv"),
    ],
)
def test_files_without_text_are_named(vocabulary, tmp_path, content, message):  # noqa: F811
    (tmp_path / "text").write_bytes(content)
    with pytest.raises(UserError, match=message):
        job(tmp_path / "out", vocabulary, tmp_path / "text")


def test_what_does_not_go_together(vocabulary, tmp_path):  # noqa: F811
    with pytest.raises(UserError, match="--general-text /nowhere: no such file"):
        job(tmp_path, vocabulary, Path("/nowhere"))
    common = ["--vocabulary", str(vocabulary), "--output", str(tmp_path)]
    with pytest.raises(UserError, match="--split: dev"):
        shards_job.run([*common, "--general_text", "x", "--split", "dev"])
    with pytest.raises(UserError, match="--punkt"):
        shards_job.run([*common, "--corpus", "x", "--punkt", "y"])


def test_punkt_is_given_as_to_the_corpus_job(tmp_path):
    """A corpus' file, the folder it is in, or NLTK's; what is none of them is named."""
    source = tmp_path / "text"
    source.write_text(AS_BLOCKS * 10)
    general_text.plan_text_units([str(source)], str(tmp_path / "corpus"), None)
    (tmp_path / "bad.json").write_text("{}")
    trained = (tmp_path / "corpus" / "punkt.json").read_bytes()
    for given in ("corpus", "corpus/punkt.json"):
        general_text.plan_text_units([str(source)], str(tmp_path / "out"), str(tmp_path / given))
        assert (tmp_path / "out" / "punkt.json").read_bytes() == trained
    for given in ("nowhere", "nowhere.json", "bad.json"):
        with pytest.raises(UserError, match=f"--punkt .*{given}"):
            general_text.plan_text_units(
                [str(source)], str(tmp_path / "out"), str(tmp_path / given)
            )


def test_an_address_out_of_reach_is_named_with_the_option():
    with pytest.raises(UserError, match=r"^--general-text nowhere://x cannot be reached"):
        general_text.find_text_files(["nowhere://x"])
