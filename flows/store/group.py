"""Groups of stages, in the order in which a graph makes them."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store


@dataclass(frozen=True)
class Group:
    """Chains of stages that are made at the same time, at most `at_once` of them."""

    chains: Sequence[Sequence[Stage]]
    at_once: int = 1
    may_fail: bool = False
    """Whether the graph goes on without what fails; it is sent the causes by the stages' paths."""

    @classmethod
    def of(cls, *stages: Stage) -> Self:
        """Return a group of stages that are made one after the other."""
        return cls([stages])

    @property
    def stages(self) -> list[Stage]:
        return [stage for chain in self.chains for stage in chain]


Groups = Generator[Group, Any, Any]
"""A graph. Whoever goes through it makes each group before it asks for the next (a run), or makes
nothing (`--dry-run`); what is complete in the store decides what follows."""


def list_stages(groups: Groups, store: Store) -> list[tuple[Stage, bool]]:
    """Return each stage of a graph once, in order, and whether it is complete."""
    stages = {stage.fingerprint: stage for group in groups for stage in group.stages}
    return [(stage, store.manifest(stage) is not None) for stage in stages.values()]
