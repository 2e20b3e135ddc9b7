"""The bench beside other tools runs on a few reviews; without the tools it measures ours alone."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

from tests.bench.peers.data_path_dump import read_record, write_dump

BENCH = Path(__file__).with_name("data_path.py")


def write_reviews(path: Path, count: int) -> None:
    texts = [f"Mixer {i} works. It is great, I like it a lot! Would buy." for i in range(count)]
    lines = [json.dumps({"reviewText": text, "overall": 5.0, "asin": "B1"}) for text in texts]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))


def read_texts(folder: Path) -> list[str]:
    lines = [
        line for f in folder.iterdir() for line in gzip.decompress(f.read_bytes()).splitlines()
    ]
    return [json.loads(line)["reviewText"] for line in lines]


def test_reviews_beyond_the_input_are_new_texts_with_new_words(tmp_path):
    write_reviews(tmp_path / "dump.json.gz", 50)
    (tmp_path / "general.txt").write_text("The river rose. It fell again.\n")
    general = [str(tmp_path / "general.txt")]
    write_dump([str(tmp_path / "dump.json.gz")], general, tmp_path / "out", 200)
    texts = read_texts(tmp_path / "out")
    assert len(texts) == 200
    assert len(set(texts)) > 190
    known = {word for text in [*read_texts_of(tmp_path)] for word in text.split()}
    assert any(set(text.split()) - known for text in texts)


def read_texts_of(folder: Path) -> list[str]:
    lines = gzip.decompress((folder / "dump.json.gz").read_bytes()).splitlines()
    return [json.loads(line)["reviewText"] for line in lines] + [
        (folder / "general.txt").read_text()
    ]


def test_a_line_without_a_text_is_left_out():
    assert read_record(b"{") is None
    assert read_record(b'{"overall": 5}') is None
    assert read_record(b'{"reviewText": "x", "other": 1}') == {
        "reviewText": "x",
        **dict.fromkeys(["overall", "asin", "reviewerID", "unixReviewTime"]),
    }


def test_ours_is_measured_without_the_other_tools(tmp_path):
    write_reviews(tmp_path / "dump.json.gz", 60)
    command = [sys.executable, str(BENCH), "--input", str(tmp_path / "dump.json.gz"), "--json"]
    command += ["--reviews", "60", "--workers", "1", "--peers"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (row,) = json.loads(done.stdout)
    assert (row["side"], row["reviews"], row["workers"]) == ("ours", 60, 1)
    assert row["cpu_seconds"] > 0
