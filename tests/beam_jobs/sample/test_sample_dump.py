"""The synthetic sample: same bytes for a seed, the documented mess, opinions that agree with the
stars.
"""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from amazon_electra.beam_jobs.sample.sample_dump import (
    LEXICON,
    LONG_TEXT,
    MESS_PER_THOUSAND,
    generate_lines,
    is_sample,
    write_sample,
)

POLARITY = {
    word: polarity
    for aspect in LEXICON["aspects"]
    for words, polarity in ((aspect["praise"], 1), (aspect["blame"], -1))
    for word in words
}


def records(reviews: int) -> list[dict]:
    return [json.loads(line) for line in generate_lines(reviews, 0) if line.endswith("}")]


def test_another_process_gives_the_same_bytes_and_says_what_is_in_them(tmp_path: Path) -> None:
    """Hash randomisation must not reach the text; another seed gives another one."""
    command = [
        sys.executable,
        "-m",
        "amazon_electra.beam_jobs.sample.sample_dump",
        "--reviews",
        "1200",
    ]
    command += ["--seed", "5", "--output", str(tmp_path / "deep" / "a.json.gz")]
    done = subprocess.run(command, check=True, env={"PYTHONHASHSEED": "1"}, capture_output=True)
    for name, seed in (("b.json.gz", 5), ("c.json.gz", 6), ("b.json", 5)):
        told = write_sample(tmp_path / name, 1_200 if name.endswith("gz") else 1_500, seed)
        assert told["bytes"] == (tmp_path / name).stat().st_size
    written = [
        (tmp_path / name).read_bytes() for name in ("deep/a.json.gz", "b.json.gz", "c.json.gz")
    ]
    assert written[0] == written[1] != written[2]
    assert len(list(tmp_path.iterdir())) == 4
    assert json.loads(done.stdout)["reviews"] == 1_200
    # plain files hold the same lines, and a small dump is the beginning of a large one
    plain = (tmp_path / "b.json").read_bytes().splitlines(keepends=True)
    assert len(plain) == 1_500
    assert gzip.decompress(written[0]) == b"".join(plain[:1_200])


def test_the_mess_is_exactly_as_documented() -> None:
    expected = {kind: 2 * count for kind, count in MESS_PER_THOUSAND.items()}
    text = list(generate_lines(2_000, 2))
    broken = [line for line in text if not line.endswith("}")]
    assert len(broken) == expected["broken_line"]
    for line in broken:
        with pytest.raises(json.JSONDecodeError):
            json.loads(line)
    read = [json.loads(line) for line in text if line.endswith("}")]
    bodies = [record["reviewText"] for record in read if "reviewText" in record]
    assert len(read) - len(bodies) == expected["missing_text"]
    assert sum(body == "" for body in bodies) == expected["empty_text"]
    assert len(text) - len(set(text)) == expected["repeated_line"]
    assert sum(bool(re.fullmatch(r"\S+", body)) for body in bodies) == expected["one_word"]
    assert sum(len(body) > LONG_TEXT for body in bodies) == expected["very_long"]
    assert sum("<br />" in body for body in bodies) == expected["html_tags"]
    assert (
        sum(bool(re.search(r"&(amp|quot|#34);", body)) for body in bodies) == expected["entities"]
    )
    assert sum(bool(re.search(r"[a-z]\.[A-Z]", body)) for body in bodies) == expected["no_space"]
    assert sum("\n" in body for body in bodies) == expected["line_breaks"]
    assert sum(not body.isascii() for body in bodies) == expected["accents"]
    assert sum("@example.com" in body for body in bodies) == expected["personal"]
    assert sum("[[VIDEOID:" in body for body in bodies) == expected["video_marker"]


def test_opinions_agree_with_the_stars() -> None:
    for record in records(3_000):
        words = re.findall(r"[a-z]+", record.get("reviewText", "").lower())
        balance = sum(POLARITY.get(word, 0) for word in words)
        if len(words) > 1 and record["overall"] != 3 and balance:
            assert (balance > 0) == (record["overall"] > 3), record


def test_a_file_of_the_sample_is_known_by_its_first_line(tmp_path: Path) -> None:
    for name, seed in (("a.json.gz", 0), ("b.json", 7)):
        write_sample(tmp_path / name, 5, seed)
        assert is_sample(tmp_path / name)
    own = tmp_path / "own.json"
    own.write_text((tmp_path / "b.json").read_text().replace("overall", "stars"))
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes((tmp_path / "a.json.gz").read_bytes()[:40])
    assert not any(map(is_sample, (own, cut, tmp_path / "none.json")))
