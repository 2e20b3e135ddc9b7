"""Is the exported folder the model? Its answers beside the fitted arm's."""

import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from amazon_electra.beam_jobs.core.errors import UserError, require
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.beam_jobs.model_folder.classifier import Classifier
from amazon_electra.beam_jobs.model_folder.config import (
    ONNX,
    QUANTIZED,
    TOKENIZER,
    Folder,
    ScoringPrecision,
)
from amazon_electra.beam_jobs.model_folder.network import Text, load_tokenizer
from amazon_electra.model.finetuning.examples import Example

CHECKED = 300
"""Examples that int8 answers; every third is answered in fp32."""
ALONE = 20
"""How many of these are answered alone too."""
MAX_DIFFERENCE = 1e-4
"""Largest difference of a probability at which a changed label counts as a tie."""
MAX_CHANGED = 0.01
"""Share of the labels that int8 may change."""
MAX_SHIFT = 1e-3
"""Largest shift of an int8 probability between a text alone and the same text in a batch."""


def load_folder(folder: Path, precision: ScoringPrecision = "fp32") -> Classifier:
    """Return the classifier of an exported folder; UserError where it cannot be loaded."""
    opened = Folder(
        lambda name: (folder / name).read_bytes(),
        lambda why: UserError(why, "model", str(folder)),
    )
    return Classifier.load(opened, precision, threads=1)  # several would spin while they wait


def choose_examples(examples: Sequence[Example], n: int = CHECKED) -> list[Example]:
    """Return at most n examples of all classes and lengths."""
    by_class = defaultdict(list)
    for one in sorted(examples, key=lambda one: len(one.text)):
        by_class[one.label].append(one)
    share = -(-n // max(1, len(by_class)))
    chosen = []
    for own in by_class.values():
        chosen += [own[i] for i in np.unique(np.linspace(0, len(own) - 1, share).astype(int))]
    return chosen[:n]


def check_folder(
    folder: Path, classifier: Classifier, examples: Sequence[Example], exact: np.ndarray
) -> tuple[dict[str, Any], float]:
    """Return what was found of an exported folder, and the median milliseconds of a text alone;
    `exact` are the fitted arm's probabilities [examples, classes]. Removes graphs in int8 that
    change too many labels or answer a text alone otherwise; UserError where the folder answers
    otherwise.
    """
    texts: list[Text] = [one.text if one.pair is None else (one.text, one.pair) for one in examples]
    some, expected = texts[::3], exact[::3]
    found = classifier.compute_probabilities(some)
    times, alone = [], []
    for text in some[:ALONE]:
        began = time.perf_counter()
        alone.append(classifier.compute_probabilities([text]))
        times.append(1000 * (time.perf_counter() - began))
    both = np.concatenate([found, *alone]) - np.concatenate([expected, expected[:ALONE]])
    difference = float(np.abs(both).max())
    require(difference <= MAX_DIFFERENCE, f"{folder}: probabilities move by {difference:.2g}")
    facts: dict[str, Any] = {"checked": {"texts": len(found), "largest_difference": difference}}
    if graphs := sorted(folder.rglob(QUANTIZED)):
        facts["int8"] = check_int8(folder, graphs, texts, exact)
    for file in sorted(folder.rglob(ONNX)):
        content = file.with_name(TOKENIZER).read_bytes()
        encoded = load_tokenizer(content, classifier.max_length).encode_batch_fast(list(texts))
        cut = sum(bool(one.overflowing) for one in encoded)
        facts["cut"] = {"max_length": classifier.max_length, "texts": len(texts), "cut": cut}
    return facts, float(np.median(times))


def check_int8(
    folder: Path, graphs: Sequence[Path], texts: Sequence[Text], exact: np.ndarray
) -> dict[str, Any]:
    """Return what int8 changes; remove its graphs if that is too much."""
    classifier = load_folder(folder, "int8")
    found = classifier.compute_probabilities(texts)
    some = texts[: 3 * ALONE : 3]
    alone = np.concatenate([classifier.compute_probabilities([one]) for one in some])
    changed = int((found.argmax(1) != exact.argmax(1)).sum())
    shift = float(np.abs(alone - found[: 3 * ALONE : 3]).max())
    is_kept = changed <= MAX_CHANGED * len(texts) and shift <= MAX_SHIFT
    if not is_kept:
        for graph in graphs:
            graph.unlink()
        print(
            f"int8 changes {changed} of {len(texts)} labels, and probabilities by up to "
            f"{shift:.2g} with the texts beside: it is not kept"
        )
    return {"texts": len(texts), "changed": changed, "largest_shift": shift, "kept": is_kept}
