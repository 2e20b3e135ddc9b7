"""Objectives of pre-training, each one class; its network is loaded when it is trained."""

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, ClassVar

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.plugins import load_plugins, register_module
from amazon_electra.beam_jobs.core.settings import list_valid
from amazon_electra.model.architecture import Architecture
from amazon_electra.model.encoders.weight_mapping import Role

BERT_MASK, BERT_RANDOM = 0.8, 0.1  # Devlin et al. 2019


class Objective:
    """An objective that predicts masked tokens, alone or among others."""

    name: ClassVar[str]
    """Value of the setting `objective`."""
    losses: ClassVar[tuple[str, ...]]
    """Names of the means in the log that are shown beside the progress bar and in the card."""
    trunk: ClassVar[str] = "encoder"
    """`trunk_name` of the network, and folder of the encoder that is fine-tuned."""
    trunk_role: ClassVar[Role] = "generator"
    """How the trunk is exported: with a head for masked tokens, or for replaced ones."""
    has_generator: ClassVar[bool] = False
    """Whether a narrower network, which is written too, proposes the tokens."""
    has_pairs: ClassVar[bool] = False
    """Whether a sequence has two texts, of which the second may follow the first."""

    network: ClassVar[str]
    """`module:class` of the network, an OwnModel (network/masked_prediction.py)"""

    def load_network(self) -> Any:
        """Return the class of the network, which loads torch."""
        return resolve_name(self.network)

    def choose_replacement(self, mask_token_fraction: float) -> tuple[float, float]:
        """Return which shares of the masked tokens become [MASK] and a random token."""
        return BERT_MASK, BERT_RANDOM

    def list_trunks(self, architecture: Architecture) -> list[Architecture]:
        """Return the shape of each network, the one that predicts masked tokens last."""
        return [architecture]

    def count_head_flops(self, architecture: Architecture) -> float:
        """Return the forward operations of the heads that each token goes through."""
        return 0.0


class ElectraObjective(Objective):
    """A generator proposes tokens, the discriminator finds the replaced ones."""

    name, trunk, has_generator = "electra", "discriminator", True
    trunk_role: ClassVar[Role] = "discriminator"
    losses = ("generator_loss", "discriminator_loss")
    network = f"{__package__}.network.electra:Electra"

    def choose_replacement(self, mask_token_fraction: float) -> tuple[float, float]:
        return mask_token_fraction, 0.0

    def list_trunks(self, architecture: Architecture) -> list[Architecture]:
        return [architecture, architecture.derive_generator()]

    def count_head_flops(self, architecture: Architecture) -> float:
        return 2 * architecture.hidden**2 + 2 * architecture.hidden


class MaskedObjective(Objective):
    """Masked language modelling (BERT without pairs)."""

    name = "mlm"
    losses: ClassVar[tuple[str, ...]] = ("mlm_loss",)
    network = f"{__package__}.network.mlm:MaskedLanguageModel"


class PairObjective(MaskedObjective):
    """Masked language modelling with next-sentence prediction (BERT)."""

    name, has_pairs = "mlm+nsp", True
    losses: ClassVar[tuple[str, ...]] = ("mlm_loss", "nsp_loss")


OBJECTIVES: dict[str, Objective] = {
    kind.name: kind() for kind in (ElectraObjective, MaskedObjective, PairObjective)
}


def register_objective(kind: type[Objective]) -> type[Objective]:
    """Add an objective, also as the decorator of its class; ValueError for a name that is taken."""
    if type(OBJECTIVES.setdefault(kind.name, kind())) is not kind:
        raise ValueError(f"two objectives are called {kind.name}")
    register_module(kind.__module__)
    return kind


def find_objective(name: str) -> Objective:
    """Return an objective of ours or a plug-in; UserError names those that there are."""
    if name not in OBJECTIVES:
        load_plugins()
    if name not in OBJECTIVES:
        raise UserError(list_valid(OBJECTIVES, "objective"))
    return OBJECTIVES[name]


def check_objective(name: str) -> str:
    return find_objective(name).name


@dataclass(frozen=True)
class MatrixFlops:
    """Operations of the matrix products, backward twice forward: what the hardware does, so no
    dense look-ups (58% of the paper's count); mlm+nsp's pair head, below 1%, is left out.
    """

    per_position: float  # of the padded sequences
    per_attended_pair: float  # of two positions of which attention computes a score
    per_slot: float  # of the masked tokens

    @staticmethod
    def derive(a: Architecture, vocabulary_size: int, objective: str) -> "MatrixFlops":
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
        of_tokens = self.per_position * positions + self.per_attended_pair * attended_pairs
        return of_tokens + self.per_slot * slots
