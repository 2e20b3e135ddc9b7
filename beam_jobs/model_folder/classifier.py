"""The loader of a model folder: texts → probabilities of the classes.

A folder holds data, not a program: model.onnx and tokenizer.json, words.npz, or model.skops, of
which only types of scikit-learn, SciPy and NumPy are loaded. Or it holds such folders, whose logits
are weighted and added.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .config import Details, Fail, Folder, ModelConfig, ScoringPrecision
from .network import Compute, Text, load_graph, load_tokenizer
from .probabilities import apply_temperature, sum_logits, take_logarithms
from .words import Words, load_pipeline

MAX_CHARACTERS = 200_000  # the rest of a longer text is ignored
PROBE = "A lamp that broke on the first day."  # on which a model is tried when it is loaded


def read_review(value: Any) -> tuple[str, str]:
    """Return a review's text, or an empty one and the reason why a value is no review.

    Null and NaN, which is how pandas writes null, are no text. Lone surrogates are left out.
    """
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return "", "no text"
    if not isinstance(value, str):
        return "", "text is not a string"
    text = value[:MAX_CHARACTERS].encode(errors="ignore").decode()
    return (text, "") if text.strip() else ("", "empty text")


@dataclass(frozen=True)
class Classifier:
    """A loaded model folder."""

    config: ModelConfig
    compute_logits: Compute
    parts: Sequence[tuple["Classifier", float]] = ()  # models, each with its weight
    fail: Fail = ValueError

    @property
    def labels(self) -> list[str]:
        return self.config.labels

    @property
    def details(self) -> Details:
        return self.config.amazon_electra

    @property
    def max_length(self) -> int:
        """Tokens of a text that a network reads; 0 without one."""
        own = (self.config, *(part.config for part, _ in self.parts))
        return max((one.amazon_electra.max_length for one in own if one.is_network), default=0)

    def score(self, texts: Sequence[Text]) -> np.ndarray:
        """Return probabilities, float32 [texts, classes]; the folder's error if not finite."""
        return self.compute_probabilities(texts).astype(np.float32)

    def compute_probabilities(self, texts: Sequence[Text]) -> np.ndarray:
        """Return probabilities, float64 [texts, classes]."""
        if not len(texts):
            return np.zeros((0, len(self.labels)))
        logits, shape = self.compute_logits(texts), (len(texts), len(self.labels))
        if logits.shape != shape or not np.isfinite(logits).all():
            what = f"scores {[*logits.shape]} of {shape[0]} texts and {shape[1]} classes"
            raise self.fail(f"{what}, or one is NaN or infinite; export it again")
        return apply_temperature(logits, self.config.temperature, self.config.is_multilabel)

    def answer(self, probabilities: np.ndarray) -> list[Any]:
        """Return the label of each text, of a multi-label model the list of its labels."""
        if not self.config.is_multilabel:
            return [self.labels[best] for best in probabilities.argmax(1)]
        has = probabilities >= np.array(self.details.thresholds)
        return [[self.labels[c] for c in np.flatnonzero(row)] for row in has]

    def decide(self, probabilities: np.ndarray) -> list[str]:
        """Return `decided` or `ask` for each text."""
        least = self.details.decided_from
        assert least is not None
        return ["decided" if best >= least else "ask" for best in probabilities.max(1)]

    @classmethod
    def load(
        cls, folder: Folder, precision: ScoringPrecision = "fp32", threads: int = 0
    ) -> "Classifier":
        """Load a folder and try it; `threads` 0: one for each core. Raises the folder's error."""
        config = folder.read_config()
        parts = [
            (cls.load(part, precision, threads), weight) for part, weight in folder.list_parts()
        ]
        files = [folder.read_file(name) for name in config.list_files(precision)]
        try:
            compute_logits = open_weights(config, files, parts, threads)
            found = cls(config, compute_logits, parts, folder.fail)
            found.compute_probabilities([PROBE])
        except Exception as error:  # each library raises whatever it comes upon
            why = " ".join(str(error).split())
            raise folder.fail(f"cannot be loaded ({why}); export it again") from error
        return found


def open_weights(
    config: ModelConfig,
    files: Sequence[bytes],
    parts: Sequence[tuple[Classifier, float]],
    threads: int,
) -> Compute:
    """Return what computes the logits of texts by these files, or by these parts."""
    is_multilabel = config.is_multilabel
    if parts:

        def add(texts: Sequence[Text]) -> np.ndarray:
            found = [part.compute_probabilities(texts) for part, _ in parts]
            logits = [take_logarithms(one, is_multilabel) for one in found]
            return sum_logits(logits, [weight for _, weight in parts])

        return add
    if config.is_network:
        weights, content = files
        tokenizer = load_tokenizer(content, config.amazon_electra.max_length)
        return load_graph(weights, tokenizer, config.pad_token_id, threads)
    if config.amazon_electra.kind == "skops":
        compute = load_pipeline(files[0], config.labels)
        return lambda texts: take_logarithms(compute(texts), is_multilabel)
    return Words.load(files[0]).compute_logits
