"""Counts the floating-point operations of pre-training, by which budgets and equal cost go."""

from dataclasses import dataclass

from amazon_electra.model.architecture import Architecture
from amazon_electra.model.config import Objective
from amazon_electra.model.pretraining.objectives import find_objective


@dataclass(frozen=True)
class MatrixFlops:
    """Operations of the matrix products of training, backward twice forward.

    This is what the hardware does, not what the ELECTRA paper counts: no dense look-ups (of the
    sample recipe 58% of the published count), attention as far as it reaches on the device
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
