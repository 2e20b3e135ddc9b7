"""General text for the control arm: blocks or lines, plain or packed, to the same shards."""

import gzip

import pyarrow.parquet as pq
import pytest

from amazon_electra.beam_jobs import shards_job
from amazon_electra.beam_jobs.config import CorpusConfig
from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.beam_jobs.core.storage import hash_file
from amazon_electra.beam_jobs.reading import work_units
from amazon_electra.beam_jobs.reading.lines import Reject, Tally
from tests.beam_jobs.dumps import review, rows_of, run_job, text_of, write_lines

BLOCKS = ["The mixer works. Great!", "The mixer\nbroke after a week.", "a week & a week"]
AS_BLOCKS = "\n\n" + "\n \n\n".join(BLOCKS) + "\n"
AS_LINES = "\n".join(block.replace("\n", " ") for block in BLOCKS)


def read_documents(path, size=1 << 20):
    """The documents of a file in units of about `size` bytes, and how many units there are."""
    [file] = work_units.list_dump_files(CorpusConfig(format="text"), [str(path)])
    units = list(work_units.cut_file(file, size, str(path.parent / f"cuts-{size}")))
    items = [item for unit in units for item in work_units.read_records(unit, Tally())]
    assert not any(isinstance(item, Reject) for item in items)
    return [" ".join(item[1]["text"].split()) for item in items], len(units)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("text", [AS_BLOCKS, AS_LINES, AS_BLOCKS.replace("\n", "\r\n")])
def test_blocks_or_lines_are_documents(tmp_path, pack, text):
    (tmp_path / "text").write_bytes(pack(text.encode()))
    found, _ = read_documents(tmp_path / "text")
    assert found == [" ".join(block.split()) for block in BLOCKS]


@pytest.mark.parametrize("text", [AS_BLOCKS * 40, (AS_LINES + "\n") * 40])
def test_large_plain_files_are_cut_between_documents(tmp_path, text):
    (tmp_path / "text").write_text(text)
    found, units = read_documents(tmp_path / "text", 500)
    assert units > 3
    assert found == read_documents(tmp_path / "text")[0]
    assert len(found) == 120


def test_what_is_tested_on_stays_out(vocabulary, tmp_path):
    write_lines(tmp_path / "d.json", [review(i) for i in range(100)])
    run_job(tmp_path / "corpus", "--input", tmp_path / "d.json")
    texts = {row["split"]: " ".join(row["sentences"]) for row in rows_of(tmp_path / "corpus")}
    others = [text_of(i) for i in range(900, 910)]
    (tmp_path / "text").write_text("\n".join([*others, *texts.values()]))
    (tmp_path / "own.csv").write_text(f'said\n"{others[0]}"\n')
    words = ["--input", tmp_path / "text", "--format", "text", "--split", "pretrain=1"]
    words += ["--withhold", tmp_path / "own.csv", "--withhold-corpus", tmp_path / "corpus"]
    made = run_job(tmp_path / "general", *words, "--punkt", tmp_path / "corpus")
    words = ["--corpus", str(tmp_path / "general"), "--output", str(tmp_path / "out")]
    words += ["--vocabulary", str(vocabulary), "--direct_running_mode", "in_memory"]
    result = call_job(shards_job.make_shards, words)
    assert {"dev", "test"} < set(texts)
    assert result["documents"] == len(others) - 1 + len(set(texts) - {"dev", "test"})
    of_file, of_corpus = map(hash_file, (tmp_path / "own.csv", tmp_path / "corpus/corpus.json"))
    assert result["documents"] == made["kept"]
    assert result["made_of"] == {
        "corpus": hash_file(tmp_path / "general" / "corpus.json"),
        "withheld": [f"own.csv {of_file[:16]}"],
        "withheld_corpus": of_corpus,
    }
    assert pq.read_metadata(tmp_path / "out" / "shard-00000.parquet").num_rows > 0
