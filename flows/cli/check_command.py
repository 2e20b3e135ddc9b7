"""`amazon-electra check`: a model folder still gives the answers of its export."""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.model_folder import QUANTIZED
from amazon_electra.beam_jobs.core.settings import OptionParser
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.model.self_test import SelfTest, read_probabilities

Answer = Callable[[list[str]], np.ndarray]
"""Texts → probabilities [texts, labels]."""
TOLERANCE = 1e-4
INT8 = "score, int8"
MAX_CHANGED = 0.02
"""Share of the labels that may be others in int8, whose probabilities differ from those in fp32."""


def add_check_options(check: OptionParser) -> None:
    check.description = (
        "Give 50 texts of the model's self-test to each library that loads the folder, and "
        "compare the probabilities."
    )
    check.add_argument("place", metavar="FOLDER", help="a model folder")
    check.add_argument(
        "--tolerance",
        type=float,
        default=TOLERANCE,
        metavar="NUMBER",
        help=f"by how much a probability may differ (default {TOLERANCE:g})",
    )
    check.set_defaults(do=check_model, parser=check)


def check_model(arguments: argparse.Namespace) -> None:
    """Print the largest difference of each way to load the model; UserError where one is larger
    than it may be, or fails.
    """
    folder = Path(arguments.place)
    test, wrong = SelfTest.read(folder), list[str]()
    for name, answer in list_libraries(folder, test):
        try:
            difference, changed = test.measure(answer)
        except UserError as error:
            wrong.append(name)
            print(f"{name}: {error}")
            continue
        is_right = changed <= MAX_CHANGED if name == INT8 else difference <= arguments.tolerance
        if not is_right:  # or NaN
            wrong.append(name)
        says = "as it was exported" if is_right else "differs"
        print(
            f"{name}: {says}, a probability by {difference:.1g} at most, "
            f"{changed:.0%} of the labels ({len(test.texts)} texts)"
        )
    if wrong:
        raise UserError(f"{folder} does not answer as the model did: {', '.join(wrong)}")


def list_libraries(folder: Path, test: SelfTest) -> Iterator[tuple[str, Answer]]:
    """Yield the name of each way to load a folder, and what answers."""
    from amazon_electra.beam_jobs.scoring.classifier import load_classifier, read_config

    config = read_config(str(folder))
    kind = config.amazon_electra.kind
    yield "score", load_classifier(str(folder), "fp32").compute_probabilities
    networks = [folder, *(folder / part["folder"] for part in config.amazon_electra.parts)]
    if any((network / QUANTIZED).exists() for network in networks):
        yield INT8, load_classifier(str(folder), "int8").compute_probabilities
    if kind == "transformers":
        from transformers import pipeline

        classify = pipeline("text-classification", model=str(folder), top_k=None, device="cpu")

        def answer_by_pipeline(texts: list[str]) -> np.ndarray:
            found = classify(texts, truncation=True, batch_size=len(texts))
            return np.array([read_probabilities(row, test.labels) for row in found])

        yield "transformers' pipeline", answer_by_pipeline
    if kind in ("transformers", "onnx"):
        yield "ONNX Runtime", open_graph(folder, config.temperature, config.is_multilabel)


def open_graph(folder: Path, temperature: float, is_multilabel: bool) -> Answer:
    """Return what answers with the graph and tokenizer.json alone, as its card's lines do."""
    from amazon_electra.beam_jobs.core.model_folder import ONNX, apply_temperature
    from amazon_electra.model.arms.onnx import run_onnx

    def answer(texts: list[str]) -> np.ndarray:
        pairs = [(text, None) for text in texts]
        logits = run_onnx(folder / ONNX, folder / "tokenizer.json", pairs)
        return apply_temperature(logits, temperature, is_multilabel)

    return answer
