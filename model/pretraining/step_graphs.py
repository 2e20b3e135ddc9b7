"""Takes whole steps as CUDA graphs: a GPU ends small kernels faster than a host begins them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from amazon_electra.model.pretraining.network.masked_prediction import Batch, Sums

WARM_UP = 2
"""Steps that are taken and undone before a graph: the first compiles, and makes AdamW's moments."""


class CaptureFailed(RuntimeError):
    """A step holds something that no CUDA graph may; nothing has changed."""


@dataclass(frozen=True)
class StepGraph:
    """A step that was captured."""

    graph: torch.cuda.CUDAGraph
    parts: list[Batch]  # which the graph reads
    names: list[str]
    numbers: Tensor  # [names + 1], which it writes: the sums, and the gradient's norm

    def take_step(self, parts: list[Batch]) -> tuple[Sums, Tensor]:
        """Take one optimizer step; return its sums and the gradient's norm."""
        for mine, given in zip(self.parts, parts, strict=True):
            for name, tensor in mine.items():
                tensor.copy_(given[name])
        self.graph.replay()
        *sums, norm = self.numbers.clone().unbind()
        return dict(zip(self.names, sums, strict=True)), norm


class StepGraphs:
    """The graphs of a training, one for each shape of a batch; they share their memory."""

    def __init__(
        self, take: Callable[[list[Batch]], tuple[Sums, Tensor]], optimizer: torch.optim.Optimizer
    ) -> None:
        """Capture what `take` does; learning rates must be tensors, which are read anew."""
        self._take, self._optimizer = take, optimizer
        self._pool = torch.cuda.graph_pool_handle()
        self._captured: dict[Any, StepGraph] = {}

    def find(self, parts: list[Batch]) -> StepGraph | None:
        return self._captured.get(_list_shapes(parts))

    def capture(self, parts: list[Batch]) -> None:
        """Make the graph that `find` returns from now on; weights and moments stay as they are."""
        parameters = [p for group in self._optimizer.param_groups for p in group["params"]]
        before = [p.detach().clone() for p in parameters]
        moments = [{n: t.clone() for n, t in self._optimizer.state[p].items()} for p in parameters]
        try:
            for _ in range(WARM_UP):
                self._take(parts)
        finally:
            with torch.no_grad():
                for parameter, weights, known in zip(parameters, before, moments, strict=True):
                    parameter.copy_(weights)
                    for name, moment in self._optimizer.state[parameter].items():
                        moment.copy_(known.get(name, torch.zeros_like(moment)))
        del before, moments
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        mine = [{name: tensor.clone() for name, tensor in part.items()} for part in parts]
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=stream):
                sums, norm = self._take(mine)
                numbers = torch.stack([*sums.values(), norm])
        except Exception as error:
            raise CaptureFailed(" ".join(str(error).split())) from error
        self._captured[_list_shapes(parts)] = StepGraph(graph, mine, list(sums), numbers)


def _list_shapes(parts: list[Batch]) -> tuple[Any, ...]:
    return tuple((name, tensor.shape) for part in parts for name, tensor in part.items())
