"""The synthetic sample: same bytes for a seed, the documented mess, opinions that agree with the
stars.
"""

import gzip
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from beam_jobs.sample import lexicon
from beam_jobs.sample.lexicon import ASPECTS, CATEGORIES
from beam_jobs.sample.sample_dump import (
    LONG_TEXT,
    count_mess,
    generate_lines,
    is_sample,
    run,
    write_sample,
)

POLARITY = {
    word: polarity
    for aspect in ASPECTS
    for words, polarity in ((aspect.praise, 1), (aspect.blame, -1))
    for word in words
}


def records(reviews: int, seed: int = 0) -> list[dict]:
    found = []
    for line in generate_lines(reviews, seed):
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def test_another_process_gives_the_same_bytes(tmp_path: Path) -> None:
    """Hash randomisation must not reach the text; another seed gives another one."""
    command = [sys.executable, "-m", "beam_jobs.sample.sample_dump", "--reviews", "1200"]
    command += ["--seed", "5", "--output", str(tmp_path / "a.json.gz")]
    subprocess.run(command, check=True, env={"PYTHONHASHSEED": "1"}, capture_output=True)
    for name, seed in (("b.json.gz", 5), ("c.json.gz", 6)):
        write_sample(tmp_path / name, 1_200, seed)
    written = [(tmp_path / f"{name}.json.gz").read_bytes() for name in "abc"]
    assert written[0] == written[1] != written[2]
    assert len(list(tmp_path.iterdir())) == 3


def test_gzip_and_plain_hold_the_same_lines_and_a_small_dump_is_the_start_of_a_large_one(
    tmp_path: Path,
) -> None:
    write_sample(tmp_path / "a.json", 2_500, 1)
    write_sample(tmp_path / "a.json.gz", 1_300, 1)
    plain = (tmp_path / "a.json").read_bytes().splitlines(keepends=True)
    assert gzip.decompress((tmp_path / "a.json.gz").read_bytes()) == b"".join(plain[:1_300])
    assert len(plain) == 2_500


@pytest.mark.parametrize("reviews", [1, 999, 2_000, 3_700])
def test_the_mess_is_exactly_as_documented(reviews: int) -> None:
    expected = count_mess(reviews)
    assert sum(expected.values()) == reviews
    text = list(generate_lines(reviews, 2))
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


def test_repeated_text_comes_from_another_reviewer() -> None:
    distinct = {line for line in generate_lines(4_000, 0) if line.endswith("}")}
    reviewers: dict[str, set[str]] = {}
    for record in map(json.loads, distinct):
        if len(record.get("reviewText", "").split()) > 1:
            reviewers.setdefault(record["reviewText"], set()).add(record["reviewerID"])
    repeated = sum(len(who) - 1 for who in reviewers.values())
    assert repeated == count_mess(4_000)["repeated_text"]


def test_records_have_the_fields_and_the_stars_of_a_2018_dump() -> None:
    read = records(5_000)
    for record in read:
        assert {
            "overall",
            "verified",
            "reviewTime",
            "reviewerID",
            "asin",
            "summary",
            "unixReviewTime",
        } <= record.keys()
    stars = Counter(record["overall"] for record in read)
    assert set(stars) == {1.0, 2.0, 3.0, 4.0, 5.0}
    assert stars[5.0] > 0.45 * len(read)
    assert min(stars.values()) > 0.06 * len(read)


def test_opinions_agree_with_the_stars() -> None:
    for record in records(3_000):
        words = re.findall(r"[a-z]+", record.get("reviewText", "").lower())
        balance = sum(POLARITY.get(word, 0) for word in words)
        if len(words) > 1 and record["overall"] != 3 and balance:
            assert (balance > 0) == (record["overall"] > 3), record


def test_every_opinion_word_is_of_one_family_and_of_no_other_part_of_a_sentence() -> None:
    opinions = [word for aspect in ASPECTS for word in aspect.praise + aspect.blame]
    assert 700 <= len(opinions) == len(set(opinions)) <= 1_500
    assert all(re.fullmatch("[a-z]+", word) for word in opinions)
    neutral: set[str] = set()
    for aspect in ASPECTS:
        neutral.update(re.findall("[a-z]+", " ".join(aspect.subjects)))
    for category in CATEGORIES:
        neutral.update(re.findall("[a-z]+", " ".join(category.products)))
        assert set(category.aspects) <= {aspect.name for aspect in ASPECTS}
    for words in (
        lexicon.FRAMES,
        lexicon.FILLERS,
        lexicon.TIMES,
        lexicon.SPANS,
        lexicon.COLORS,
        lexicon.HEDGES,
        lexicon.PLAIN_ADVERBS,
    ):
        neutral.update(re.findall("[a-z]+", " ".join(words).lower()))
    assert not neutral & set(opinions)


def test_a_file_of_the_sample_is_known_by_its_first_line(tmp_path: Path) -> None:
    for name, seed in (("a.json.gz", 0), ("b.json", 7)):
        write_sample(tmp_path / name, 5, seed)
        assert is_sample(tmp_path / name)
    own = tmp_path / "own.json"
    own.write_text((tmp_path / "b.json").read_text().replace("overall", "stars"))
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes((tmp_path / "a.json.gz").read_bytes()[:40])
    assert not any(map(is_sample, (own, cut, tmp_path / "none.json")))


def test_the_command_writes_the_file_and_says_what_is_in_it(tmp_path: Path) -> None:
    result = run(["--reviews", "1000", "--output", str(tmp_path / "deep" / "s.json.gz")])
    assert result["reviews"] == 1_000
    written = tmp_path / "deep" / "s.json.gz"
    lines = gzip.decompress(written.read_bytes()).decode().splitlines()
    assert sum(not line.endswith("}") for line in lines) == result["mess"]["broken_line"]
    assert sum(result["mess"].values()) == len(lines) == 1_000
    assert written.stat().st_size == result["bytes"]
