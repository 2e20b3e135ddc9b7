"""Sums gradients over all processes while the backward pass that makes them goes on.

Parameters are put into buckets in the reverse of their order, about that in which their gradients
are ready; a bucket is sent as soon as all of its gradients are there. That is how torch's
DistributedDataParallel works (Li et al. 2020, arXiv 2006.15704), which is not taken because it
cannot go on where one process ran out of memory: the others would wait for its gradients for ever.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from model.processes.rank import Rank

BUCKET_BYTES = 25 * 2**20  # DistributedDataParallel's default


class Bucket:
    """Some parameters, and their gradients one after the other."""

    def __init__(self, parameters: list[nn.Parameter], kind: torch.dtype) -> None:
        self.parameters = parameters
        sizes = [parameter.numel() for parameter in parameters]
        self.flat = torch.zeros(sum(sizes), dtype=kind, device=parameters[0].device)
        self._views = [
            part.view_as(parameter)
            for part, parameter in zip(self.flat.split(sizes), parameters, strict=True)
        ]

    def fill(self) -> None:
        """Copy the gradients into the bucket; 0 where there is none."""
        self.flat.zero_()
        views, gradients = self._pair_gradients()
        if gradients:
            torch._foreach_copy_(views, gradients)

    def empty(self) -> None:
        """Put the sums in the place of the gradients."""
        views, gradients = self._pair_gradients()
        if gradients:
            torch._foreach_copy_(gradients, views)

    def _pair_gradients(self) -> tuple[list[Tensor], list[Tensor]]:
        pairs = [
            (view, parameter.grad)
            for view, parameter in zip(self._views, self.parameters, strict=True)
            if parameter.grad is not None
        ]
        return [view for view, _ in pairs], [gradient for _, gradient in pairs]


class GradientSum:
    """The buckets of a model's parameters; `kind` is the type in which they travel.

    Which parameters get a gradient is learnt in a step, in which all buckets go at its end, and
    again when another part of the model is frozen.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        rank: Rank,
        kind: torch.dtype,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        self._rank = rank
        self._parameters = list(parameters)[::-1]
        self._buckets = [
            Bucket(part, kind) for part in _cut_parameters(self._parameters, bucket_bytes)
        ]
        self._place = {id(p): i for i, b in enumerate(self._buckets) for p in b.parameters}
        self._with_gradient: set[int] | None = None
        self._frozen: list[bool] = []
        self._is_open = False
        for parameter in self._parameters:
            parameter.register_post_accumulate_grad_hook(self._note_gradient)

    def begin(self) -> None:
        """Expect the gradients of a step: its last backward pass comes next."""
        frozen = [not parameter.requires_grad for parameter in self._parameters]
        if frozen != self._frozen:
            self._frozen, self._with_gradient = frozen, None
        learnt = self._with_gradient
        self._missing = [
            {id(p) for p in bucket.parameters if learnt is None or id(p) in learnt}
            for bucket in self._buckets
        ]
        self._left = [i for i, missing in enumerate(self._missing) if missing]
        self._works = dict[int, object]()
        self._arrived = set[int]()
        self._is_open = True

    def _note_gradient(self, parameter: nn.Parameter) -> None:
        """Send what is complete, in the same order in all processes."""
        if not self._is_open:
            return
        self._arrived.add(id(parameter))
        place = self._place[id(parameter)]
        assert place not in self._works, "a gradient that no step before had"
        self._missing[place].discard(id(parameter))
        while self._with_gradient is not None and self._left and not self._missing[self._left[0]]:
            self._send(self._left[0])

    def _send(self, place: int) -> None:
        self._left.remove(place)
        self._buckets[place].fill()
        self._works[place] = self._rank.begin_sum(self._buckets[place].flat)

    def finish(self, has_failed: bool) -> bool:
        """Replace every gradient by its sum; return whether any process failed in this step, whose
        gradients are then worthless.

        One that failed sends what it has all the same: the others wait for it.
        """
        if not self._is_open:
            self.begin()
        self._is_open = False
        for place in list(self._left):
            self._send(place)
        failed = self._rank.all_reduce_max(has_failed)[0] > 0
        for place, work in self._works.items():
            self._rank.wait_for(work)
            if not failed:
                self._buckets[place].empty()
        if not failed:
            self._with_gradient = self._arrived
        return failed


def _cut_parameters(parameters: list[nn.Parameter], most: int) -> list[list[nn.Parameter]]:
    """Return the parameters in buckets of `most` bytes of fp32, or of one that is larger."""
    buckets: list[list[nn.Parameter]] = [[]]
    held = 0
    for parameter in parameters:
        size = 4 * parameter.numel()
        if buckets[-1] and held + size > most:
            buckets.append([])
            held = 0
        buckets[-1].append(parameter)
        held += size
    return buckets
