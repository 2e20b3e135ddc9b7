"""Each way to load a model folder, and how far its answers are from others."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from amazon_electra.beam_jobs.core.model_folder import ONNX, QUANTIZED, apply_temperature
from amazon_electra.beam_jobs.scoring.classifier import load_classifier, read_config
from amazon_electra.model.arms.onnx import run_onnx

Answer = Callable[[list[str]], np.ndarray]
"""Texts → probabilities [texts, labels]."""
INT8 = "score, int8"
FULL_BATCH = 32
ALONE = 5
"""Texts that are answered alone too."""


@dataclass(frozen=True)
class Expected:
    """What a model answers to texts."""

    texts: list[str]
    probabilities: np.ndarray
    """Float64 [texts, labels]."""

    def measure(self, answer: Answer) -> float:
        """Return by how much a probability differs at most, in batches and of texts alone."""
        parts = [(i, i + FULL_BATCH) for i in range(0, len(self.texts), FULL_BATCH)]
        parts += [(i, i + 1) for i in range(min(ALONE, len(self.texts)))]
        differences = [
            np.abs(answer(self.texts[a:b]) - self.probabilities[a:b]).max() for a, b in parts
        ]
        return float(max(differences))


def list_libraries(folder: Path) -> Iterator[tuple[str, Answer]]:
    """Yield the name of each library that loads a folder, and what answers."""
    config = read_config(str(folder))
    kind = config.amazon_electra.kind
    classifier = load_classifier(str(folder), "fp32")
    yield "score", classifier.compute_probabilities
    networks = [folder, *(folder / part["folder"] for part in config.amazon_electra.parts)]
    if any((network / QUANTIZED).exists() for network in networks):
        yield INT8, load_classifier(str(folder), "int8").compute_probabilities
    if kind == "transformers":
        from transformers import pipeline

        classify = pipeline("text-classification", model=str(folder), top_k=None, device="cpu")

        def answer_by_pipeline(texts: list[str]) -> np.ndarray:
            found = classify(texts, truncation=True, batch_size=len(texts))
            rows = [{one["label"]: one["score"] for one in row} for row in found]
            return order_by_label(rows, classifier.labels)

        yield "transformers' pipeline", answer_by_pipeline
    if kind in ("transformers", "onnx"):

        def answer_by_graph(texts: list[str]) -> np.ndarray:
            pairs = [(text, None) for text in texts]
            logits = run_onnx(folder / ONNX, folder / "tokenizer.json", pairs)
            return apply_temperature(logits, config.temperature, config.is_multilabel)

        yield "ONNX Runtime", answer_by_graph


def order_by_label(rows: Sequence[dict[str, float]], labels: Sequence[str]) -> np.ndarray:
    """Return the probabilities [texts, labels] of rows {label: probability}."""
    return np.array([[row[label] for label in labels] for row in rows])
