"""A folder in which a person types the commands of the documents, and a shop's reviews for it."""

import csv
import random
import shlex
import subprocess
import sys
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from tests.served import CLEAN

PROGRAMS = {
    "amazon-electra": [sys.executable, "-m", "amazon_electra.flows.cli.main"],
    "mlflow": [sys.executable, "-m", "mlflow"],
    "python": [sys.executable],
}


@dataclass(frozen=True)
class Shell:
    folder: Path
    store: Path
    settings: dict[str, str]

    def start(
        self, command: str, *more: object, names: dict[str, object] | None = None
    ) -> "subprocess.Popen[str]":
        """Start a command as a document has it; `names` are what it stands for in capitals, or by
        an example, and `more` words make it small.
        """
        for name, word in (names or {}).items():
            assert name in command, (name, command)
            command = command.replace(name, shlex.quote(str(word)))
        program, *words = shlex.split(command)
        return subprocess.Popen(
            [*PROGRAMS[program], *words, *map(str, more)],
            cwd=self.folder,
            env={**CLEAN, "AMAZON_ELECTRA_STORE": str(self.store), **self.settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def type(self, command: str, *more: object, names: dict[str, object] | None = None) -> str:
        """Return what a command printed, which ended well."""
        process = self.start(command, *more, names=names)
        printed, told = process.communicate()
        assert process.returncode == 0, f"{command}\n{printed}\n{told}"
        return printed


STARS = {
    1: "awful broken useless terrible faulty horrible dreadful cracked worthless ruined",
    2: "weak flimsy noisy cheap slow blunt leaky dull wobbly loose",
    3: "average ordinary acceptable fair plain medium usual moderate standard passable",
    4: "nice good pleasant useful solid handy neat tidy smooth decent",
    5: "wonderful perfect superb excellent splendid brilliant lovely marvellous amazing ideal",
}
REASONS = {
    "delivery": "parcel courier driver doorstep shipping post van address tracking sender",
    "product": "lid handle motor button cable screw hinge switch wheel blade",
    "service": "hotline clerk answer refund manual letter call chat reply helper",
}
ASPECTS = {
    "battery": "charger accumulator voltage power watts",
    "price": "dear money bargain costs discount",
    "size": "large tiny wide narrow huge",
}
THINGS = "kettle lamp chair phone blanket knife clock radio basket mirror"


def write_shop(path: Path, count: int, first: int = 0, labelled: bool = True) -> Path:
    """Write a shop's reviews; stars, reason and aspects follow from their words."""
    draw = random.Random(first)

    def say(words: str, number: int = 2) -> str:
        return " and ".join(draw.sample(words.split(), number))

    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        labels = ["stars", "reason", "aspects"] if labelled else []
        rows.writerow(["order_id", "date", "text", *labels])
        for number in range(first, first + count):
            stars, reason = draw.choice([*STARS]), draw.choice([*REASONS])
            aspects = [name for name in ASPECTS if draw.random() < 0.4]
            text = f"Our {say(THINGS, 1)}, number {number}, is {say(STARS[stars], 3)}. "
            text += f"It was about the {say(REASONS[reason])}."
            text += "".join(f" And the {say(ASPECTS[name])}." for name in aspects)
            given = [stars, reason, "|".join(aspects)] if labelled else []
            day = date(2026, 1, 1) + timedelta(hours=6 * (number % 1000))
            rows.writerow([f"A-{number}", day, text, *given])
    return path
