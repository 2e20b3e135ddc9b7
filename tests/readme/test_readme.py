"""The commands at the top of the README, typed one after the other in a fresh clone.

They install gigabytes and run all tests: `make test-readme`, as a part of `make test-all`.
"""

import os
import random
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
WORDS = {"5": "bdfgk", "1": "mnprt"}
"""Letters of made-up words: n-grams tell them apart, and no encoder knows them."""


def list_first_commands() -> list[str]:
    """Return the lines of the README's first block of commands, without their comments."""
    block = re.search(r"(?:^    .+\n)+", README, re.M)
    assert block
    return [re.sub(r"\s+#.*", "", line.strip()) for line in block[0].splitlines()]


def write_reviews(path: Path, rows: int) -> None:
    draw, lines = random.Random(rows), ["text,stars"]
    for number in range(rows):
        stars = draw.choice("15")
        words = ["".join(draw.choices(WORDS[stars] + "aeiou", k=7)) for _ in range(4)]
        lines.append(f"Order {number} was {' '.join(words)}.,{stars}")
    path.write_text("\n".join(lines) + "\n")


def test_the_first_commands_work_in_a_fresh_clone(tmp_path):
    commands = list_first_commands()
    assert commands[:2] == ["make demo", "make test"]
    subprocess.run(["git", "clone", "--quiet", ROOT, tmp_path / "clone"], check=True)
    write_reviews(tmp_path / "clone" / "shop.csv", 400)
    write_reviews(tmp_path / "clone" / "new-reviews.csv", 50)
    ours = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "MAKEFLAGS", "MAKELEVEL")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    script = "\n".join(["set -ex", *commands])
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path / "clone", env=environment)
    assert done.returncode == 0
    assert (tmp_path / "clone" / "scores" / "new-reviews.scores.csv").is_file()
