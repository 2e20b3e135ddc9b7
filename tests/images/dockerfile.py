"""The instructions of a Dockerfile, read as far as ours go."""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")


class Instruction(NamedTuple):
    """A word such as RUN and the text after it."""

    word: str
    text: str

    def split_words(self, variables: Mapping[str, str]) -> list[str]:
        """Return the words of the text, with the variables that the image knows filled in; those of
        a list in brackets as they stand.
        """
        if self.text.startswith("["):
            return list(json.loads(self.text))
        filled = VARIABLE.sub(
            lambda found: variables.get(found[1] or found[2], found[0]), self.text
        )
        return shlex.split(filled)


def read_instructions(path: Path) -> list[Instruction]:
    """Return the instructions of a Dockerfile in their order."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ")
    pairs = (line.split(maxsplit=1) for line in whole.splitlines() if line.strip())
    return [Instruction(word.upper(), text.strip()) for word, text in pairs]
