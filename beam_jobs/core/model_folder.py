"""What the writer of a model folder (model.export) and its reader (beam_jobs.scoring) agree on."""

import numpy as np

ONNX, QUANTIZED, PIPELINE = "model.onnx", "model_quantized.onnx", "model.skops"
"""Names of the files with the weights: of a network in fp32 and in int8, and of TF-IDF."""
LEAST_PROBABILITY = 1e-30
"""Of a class: one that a pipeline never saw has a logarithm too."""


def take_logarithms(probabilities: np.ndarray) -> np.ndarray:
    """Return logits, float64, whose softmax are the probabilities."""
    return np.log(np.maximum(probabilities.astype(np.float64), LEAST_PROBABILITY))


def apply_temperature(logits: np.ndarray, temperature: float) -> np.ndarray:
    """Return softmax(logits / temperature), float64 [examples, classes]."""
    scaled = logits.astype(np.float64) / temperature
    powers = np.exp(scaled - scaled.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))
