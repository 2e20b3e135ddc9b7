"""Counts the floating-point operations of pre-training in two ways.

`count_published_flops` follows google-research/electra, flops_computation.py, so that figures are
comparable with the paper's tables: a multiplication of m×n by n is 2mn operations, backward costs
as much as forward, an embedding lookup counts as a dense product. `MatrixFlops` counts the products
that are really computed, which budgets, equal cost and utilization go by: with a vocabulary of
4,000, 58% of the sample recipe's published count are look-ups that nobody computes.
"""

from dataclasses import dataclass

from amazon_electra.model.config import Architecture, Objective
from amazon_electra.model.pretraining.objectives import find_objective

DROPOUT, LAYER_NORM, ACTIVATION, SOFTMAX = 4, 5, 8, 5  # operations per element
PUBLISHED_OUTPUT_FRACTION = 0.15625  # tokens that reach the vocabulary projection, for 15% masked


def count_published_flops(
    architecture: Architecture,
    vocabulary_size: int,
    length: int,
    sequences: int,
    objective: Objective = "electra",
) -> float:
    """Return the published count for training on `sequences` sequences of `length` tokens."""
    if not find_objective(objective).has_generator:
        per_token = _count_trunk_with_token_head(architecture, vocabulary_size, length)
        per_token += find_objective(objective).count_head_flops(architecture)
        return 2 * length * sequences * per_token
    hidden = architecture.hidden
    replaced_head = 2 * hidden * hidden + (1 + ACTIVATION) * hidden + 2 * hidden
    discriminator = _count_trunk(architecture, vocabulary_size, length) + replaced_head
    generator = _count_trunk_with_token_head(
        architecture.derive_generator(), vocabulary_size, length
    )
    return 2 * length * sequences * (discriminator + generator)


@dataclass(frozen=True)
class MatrixFlops:
    """Operations of the matrix products of training, backward twice forward.

    This is what the hardware does: no dense look-ups, attention as far as it reaches on the device
    (within documents, or over whole rows), and the vocabulary projection for the slots that the
    masking takes. mlm+nsp's pair head is left out; it is below 1% of any recipe.
    """

    per_position: float  # of the padded sequences
    per_attended_pair: float  # of two positions of which attention computes a score
    per_slot: float  # of the masked tokens

    @staticmethod
    def derive(a: Architecture, vocabulary_size: int, objective: Objective) -> "MatrixFlops":
        """Return the operations of a network with this vocabulary and objective."""
        kind = find_objective(objective)
        trunks, position = kind.list_trunks(a), kind.count_head_flops(a)
        for trunk in trunks:  # projections and feed-forward, without attention
            project = trunk.embedding != trunk.hidden
            position += trunk.layers * (8 * trunk.hidden**2 + 4 * trunk.hidden * trunk.intermediate)
            position += 2 * trunk.embedding * trunk.hidden * project
        attention = sum(4 * trunk.layers * trunk.hidden for trunk in trunks)
        slot = 2 * a.embedding * (vocabulary_size + trunks[-1].hidden)
        return MatrixFlops(3 * position, 3 * attention, 3 * slot)

    def count(self, positions: float, attended_pairs: float, slots: float) -> float:
        """Return the operations of training on so many positions, pairs of them that attention
        computes, and masked slots.
        """
        return (
            self.per_position * positions
            + self.per_attended_pair * attended_pairs
            + self.per_slot * slots
        )


def _count_trunk_with_token_head(a: Architecture, vocabulary_size: int, length: int) -> float:
    dense = 2 * a.hidden * a.embedding + (1 + ACTIVATION + LAYER_NORM) * a.embedding
    head = dense + (2 * a.embedding + SOFTMAX + 2) * vocabulary_size
    return _count_trunk(a, vocabulary_size, length) + PUBLISHED_OUTPUT_FRACTION * head


def _count_trunk(a: Architecture, vocabulary_size: int, length: int) -> float:
    """Count forward per token: embeddings and all layers."""
    h, i = a.hidden, a.intermediate
    products = 3 * 2 * h * h + 2 * h * length + 2 * h * length + 2 * h * h + 2 * h * i + 2 * h * i
    attention = (SOFTMAX + DROPOUT + 1) * length * a.heads  # 1: the scale
    biases = 3 * h + h + i + h
    rest = 2 * (DROPOUT + 1 + LAYER_NORM) * h + ACTIVATION * i  # 1: the residual
    layer = products + attention + biases + rest
    lookups = 2 * a.embedding * vocabulary_size + 2 * a.embedding * (length + 2)
    project = 2 * a.hidden * a.embedding + a.hidden if a.embedding != a.hidden else 0
    embedding = lookups + (2 + LAYER_NORM + DROPOUT) * a.embedding + project
    return a.layers * layer + embedding
