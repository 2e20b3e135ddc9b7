"""`self_test.json` in a model folder: texts and what the model answered to them before it was
exported. `amazon-electra check` asks a server, or a library, for the same answers.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import write_json

FILE = "self_test.json"
TEXTS = 50
FULL_BATCH = 32
"""Texts of a request; text-embeddings-inference takes no more."""
ALONE = 5
"""Texts that are sent alone too."""


@dataclass(frozen=True)
class SelfTest:
    labels: list[str]
    texts: list[str]
    probabilities: np.ndarray
    """Float64 [texts, labels]."""

    def write(self, folder: Path) -> None:
        rows = [
            {"text": text, "probabilities": [round(p, 7) for p in row]}
            for text, row in zip(self.texts, self.probabilities.tolist(), strict=True)
        ]
        write_json(folder / FILE, {"labels": self.labels, "texts": rows})

    @classmethod
    def read(cls, folder: Path) -> "SelfTest":
        """Return the self-test of a folder; UserError where it has none, or a damaged one."""
        try:
            content = json.loads((folder / FILE).read_text(encoding="utf-8"))
            rows, labels = content["texts"], content["labels"]
            expected = np.array([row["probabilities"] for row in rows], np.float64)
            if expected.shape != (len(rows), len(labels)) or not rows:
                raise ValueError("probabilities are not those of its labels")
            return cls(labels, [row["text"] for row in rows], expected)
        except FileNotFoundError:
            raise UserError(
                f"{folder} has no {FILE}; `python -m amazon_electra.model.export` writes it"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{folder / FILE} is damaged ({error}); export it again") from error

    def measure(self, answer: Callable[[list[str]], np.ndarray]) -> tuple[float, float]:
        """Return by how much a probability differs at most, in batches and of texts alone, and the
        share of the texts whose likeliest label is another one in a batch.

        `answer` gives the probabilities [texts, labels] of some texts.
        """
        batches = [(i, i + FULL_BATCH) for i in range(0, len(self.texts), FULL_BATCH)]
        batches += [(i, i + 1) for i in range(min(ALONE, len(self.texts)))]
        found = [answer(self.texts[a:b]) for a, b in batches]
        differences = [
            np.abs(one - self.probabilities[a:b]).max()
            for one, (a, b) in zip(found, batches, strict=True)
        ]
        in_batches = np.concatenate(found)[: len(self.texts)]
        changed = in_batches.argmax(1) != self.probabilities.argmax(1)
        return float(max(differences)), float(changed.mean())


def read_probabilities(answer: Any, labels: Sequence[str]) -> list[float]:
    """Return the probability of each label from a server's answer for one text: numbers in the
    order of the labels, {label or its number: probability}, [{"label": …, "score": …}], a row of
    `score` or MLflow with `probabilities`, or any of them as JSON in a string.

    ValueError where it is none of these.
    """
    if isinstance(answer, str):
        answer = json.loads(answer)
    if isinstance(answer, dict) and "probabilities" in answer:
        answer = answer["probabilities"]
    if isinstance(answer, list) and answer and isinstance(answer[0], dict):
        answer = {one.get("label"): one.get("score") for one in answer}
    if isinstance(answer, dict):
        answer = [answer.get(label, answer.get(str(i))) for i, label in enumerate(labels)]
    if (
        isinstance(answer, list)
        and len(answer) == len(labels)
        and all(isinstance(one, int | float) for one in answer)
    ):
        return [float(one) for one in answer]
    raise ValueError(f"no probability for each of {', '.join(labels)}: {str(answer)[:80]}")
