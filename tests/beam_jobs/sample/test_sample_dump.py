"""The synthetic sample: same bytes for a seed, documented mess, opinions that agree with stars."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

from amazon_electra.beam_jobs.sample.sample_dump import (
    LEXICON,
    LONG_TEXT,
    MESS_PER_THOUSAND,
    generate_lines,
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


def test_another_process_gives_the_same_bytes(tmp_path: Path) -> None:
    """Hash randomisation must not reach the text; another seed gives another one."""
    command = [sys.executable, "-m", "amazon_electra.beam_jobs.sample.sample_dump", "--seed", "5"]
    command += ["--reviews", "1200", "--output", str(tmp_path / "deep" / "a.json.gz")]
    done = subprocess.run(command, check=True, env={"PYTHONHASHSEED": "1"}, capture_output=True)
    assert json.loads(done.stdout)["reviews"] == 1_200
    for name, seed in (("b.json.gz", 5), ("c.json.gz", 6), ("b.json", 5)):
        told = write_sample(tmp_path / name, 1_200 if name.endswith("gz") else 1_500, seed)
        assert told["bytes"] == (tmp_path / name).stat().st_size
    one, two, other = (
        (tmp_path / name).read_bytes() for name in ("deep/a.json.gz", "b.json.gz", "c.json.gz")
    )
    assert one == two != other
    # plain files hold the same lines, and a small dump is the beginning of a large one
    plain = (tmp_path / "b.json").read_bytes().splitlines(keepends=True)
    assert len(plain) == 1_500
    assert gzip.decompress(one) == b"".join(plain[:1_200])


SIGNS = {  # of a kind of mess in a text
    "empty_text": r"",
    "one_word": r"\S+",
    "very_long": rf"(?s).{{{LONG_TEXT + 1},}}",
    "html_tags": r"(?s).*<br />.*",
    "entities": r"(?s).*&(amp|quot|#34);.*",
    "no_space": r"(?s).*[a-z]\.[A-Z].*",
    "line_breaks": r"(?s).*\n.*",
    "accents": r"(?s).*[^\x00-\x7f].*",
    "personal": r"(?s).*@example\.com.*",
    "video_marker": r"(?s).*\[\[VIDEOID:.*",
}


def test_the_mess_is_exactly_as_documented() -> None:
    lines = list(generate_lines(2_000, 2))
    read = [json.loads(line) for line in lines if line.endswith("}")]
    bodies = [record["reviewText"] for record in read if "reviewText" in record]
    found = {
        kind: sum(map(bool, (re.fullmatch(sign, one) for one in bodies)))
        for kind, sign in SIGNS.items()
    }
    found["broken_line"] = len(lines) - len(read)
    found["missing_text"] = len(read) - len(bodies)
    found["repeated_line"] = len(lines) - len(set(lines))
    assert found == {kind: 2 * MESS_PER_THOUSAND[kind] for kind in found}
    assert MESS_PER_THOUSAND.keys() - found.keys() == {"repeated_text", "typo"}


def test_opinions_agree_with_the_stars() -> None:
    for record in records(3_000):
        words = re.findall(r"[a-z]+", record.get("reviewText", "").lower())
        balance = sum(POLARITY.get(word, 0) for word in words)
        if len(words) > 1 and record["overall"] != 3 and balance:
            assert (balance > 0) == (record["overall"] > 3), record
