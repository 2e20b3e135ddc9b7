"""Floating-point operations of pre-training, by the method the published figures were counted with.

google-research/electra, flops_computation.py: a multiplication of m×n by n is 2mn operations, backward costs as much as
forward, an embedding lookup counts as a dense product. So that budgets are comparable with the paper's tables.
`matrix_flops` leaves out what the hardware does not do (dense lookups) and counts backward as twice forward, the usual
convention for utilization.
"""

from model.presets import Architecture, Objective

DROPOUT, LAYER_NORM, ACTIVATION, SOFTMAX = 4, 5, 8, 5  # operations per element
PUBLISHED_OUTPUT_FRACTION = 0.15625  # tokens that reach the vocabulary projection, for 15% masked


def train_flops(
    architecture: Architecture,
    vocabulary_size: int,
    length: int,
    sequences: int,
    objective: Objective = "electra",
    output_fraction: float = PUBLISHED_OUTPUT_FRACTION,
) -> float:
    """Operations to train on `sequences` sequences of `length` tokens."""
    if objective != "electra":
        return 2 * length * sequences * _with_token_head(architecture, vocabulary_size, length, output_fraction)
    discriminator = _trunk(architecture, vocabulary_size, length) + _replaced_head(architecture)
    generator = _with_token_head(architecture.generator(), vocabulary_size, length, output_fraction)
    return 2 * length * sequences * (discriminator + generator)


def matrix_flops(
    architecture: Architecture,
    vocabulary_size: int,
    length: int,
    objective: Objective = "electra",
    output_fraction: float = PUBLISHED_OUTPUT_FRACTION,
) -> float:
    """Operations per token position of one training step, matrix products only, backward twice forward."""
    trunks = [architecture, architecture.generator()] if objective == "electra" else [architecture]
    forward = sum(_products(trunk, length) for trunk in trunks)
    narrow = trunks[-1]
    forward += output_fraction * 2 * narrow.embedding * (vocabulary_size + narrow.hidden)
    if objective == "electra":
        forward += 2 * architecture.hidden**2 + 2 * architecture.hidden
    return 3 * forward


def _products(a: Architecture, length: int) -> float:
    """Per token, forward: projections, attention over the whole length, feed-forward."""
    per_layer = 8 * a.hidden**2 + 4 * a.hidden * length + 4 * a.hidden * a.intermediate
    project = 2 * a.embedding * a.hidden if a.embedding != a.hidden else 0
    return a.layers * per_layer + project


def _with_token_head(a: Architecture, vocabulary_size: int, length: int, fraction: float) -> float:
    return _trunk(a, vocabulary_size, length) + fraction * _token_head(a, vocabulary_size)


def _trunk(a: Architecture, vocabulary_size: int, length: int) -> float:
    """Per token, forward: embeddings and all layers."""
    return a.layers * _layer(a, length) + _embedding(a, vocabulary_size, length)


def _layer(a: Architecture, length: int) -> float:
    h, i = a.hidden, a.intermediate
    products = 3 * 2 * h * h + 2 * h * length + 2 * h * length + 2 * h * h + 2 * h * i + 2 * h * i
    attention = (SOFTMAX + DROPOUT + 1) * length * a.heads  # 1: the scale
    biases = 3 * h + h + i + h
    rest = 2 * (DROPOUT + 1 + LAYER_NORM) * h + ACTIVATION * i  # 1: the residual
    return products + attention + biases + rest


def _embedding(a: Architecture, vocabulary_size: int, length: int) -> float:
    lookups = 2 * a.embedding * vocabulary_size + 2 * a.embedding * (length + 2)
    project = 2 * a.hidden * a.embedding + a.hidden if a.embedding != a.hidden else 0
    return lookups + (2 + LAYER_NORM + DROPOUT) * a.embedding + project


def _token_head(a: Architecture, vocabulary_size: int) -> float:
    dense = 2 * a.hidden * a.embedding + (1 + ACTIVATION + LAYER_NORM) * a.embedding
    return dense + (2 * a.embedding + SOFTMAX + 2) * vocabulary_size


def _replaced_head(a: Architecture) -> float:
    return 2 * a.hidden * a.hidden + (1 + ACTIVATION) * a.hidden + 2 * a.hidden
