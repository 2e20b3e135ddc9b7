"""Convert a classifier to the form it scores in: fp32, bf16 weights and states, or int8 products.

In int8, the weights of the encoder's large products are whole numbers with one step per output, and
so is each token's input, with a step of its own: a text's label does not depend on the texts in its
batch. Everything between the products stays fp32.
"""

from functools import cached_property
from typing import Literal

import torch
from torch import Tensor, nn

Form = Literal["fp32", "bf16", "int8"]
LEVELS = 127
"""Largest whole number of a step to each side of zero."""
MIDDLE = 128
"""Zero of the unsigned bytes that inputs become: oneDNN is fastest with those."""
SMALLEST_WIDTH = 64
"""Inputs of a layer below which a product in int8 saves nothing (the head's, for example)."""


def convert_form(network: nn.Module, form: Form) -> nn.Module:
    """Return the network, changed in place, in the form."""
    if form == "bf16":
        return network.to(torch.bfloat16)
    if form == "int8":
        _replace_linear_layers(network)
    return network


def _replace_linear_layers(network: nn.Module) -> None:
    for module in list(network.modules()):
        rounding = Rounding()
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear and min(child.weight.shape) >= SMALLEST_WIDTH:
                setattr(module, name, Int8Linear(child, rounding))


class Rounding:
    """Rounds states to bytes, once for layers side by side that map the same states: query, key and
    value.
    """

    def __init__(self) -> None:
        self._states: Tensor | None = None
        self._rounded: tuple[Tensor, Tensor] | None = None

    def __deepcopy__(self, memo: dict) -> "Rounding":
        return Rounding()

    def round_states(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return [rows, inputs] in bytes around MIDDLE, and the step of each row, [rows, 1]."""
        if states is not self._states or self._rounded is None:
            rows = states.reshape(-1, states.shape[-1])
            # torch.aminmax takes twenty times as long
            highest, lowest = rows.amax(1, keepdim=True), rows.amin(1, keepdim=True)
            step = (torch.maximum(highest, -lowest) / LEVELS).clamp(min=1e-20)
            whole = (rows * (1 / step)).add(MIDDLE + 0.5).to(torch.uint8)  # + 0.5: this cuts
            self._states, self._rounded = states, (whole, step)
        return self._rounded


class Int8Linear(nn.Module):
    """Maps [..., inputs] to [..., outputs] in fp32 by a product of bytes.

    The exported program holds `weight` as int8 [inputs, outputs]; whoever loads it packs every int8
    buffer by `onednn.qlinear_prepack`, because a packed weight cannot be saved.
    """

    weight: Tensor
    bias: Tensor
    steps: Tensor
    zeros: Tensor
    one: Tensor
    middle: Tensor

    def __init__(self, linear: nn.Linear, rounding: Rounding | None = None) -> None:
        super().__init__()
        self.rounding = rounding or Rounding()
        weight = linear.weight.detach()
        smallest = torch.finfo(torch.float32).tiny
        steps = (weight.abs().amax(1) / LEVELS).clamp(min=smallest)
        whole = (weight / steps[:, None]).round().to(torch.int8)
        self.register_buffer("weight", whole.t().contiguous())
        self.register_buffer("steps", steps)
        self.register_buffer("zeros", torch.zeros(len(steps), dtype=torch.int64))
        self.register_buffer("one", torch.ones(1))
        self.register_buffer("middle", torch.full((1,), MIDDLE, dtype=torch.int32))
        bias = torch.zeros(len(steps)) if linear.bias is None else linear.bias.detach().clone()
        self.register_buffer("bias", bias)

    @cached_property
    def packed(self) -> Tensor:
        """The weight in the order in which oneDNN reads it."""
        packed: Tensor = torch.ops.onednn.qlinear_prepack(self.weight.t().contiguous(), None)
        return packed

    def forward(self, states: Tensor) -> Tensor:
        whole, step = self.rounding.round_states(states)
        weight = self.weight if torch.compiler.is_exporting() else self.packed
        product = torch.ops.onednn.qlinear_pointwise(
            whole, self.one, self.middle, weight, self.steps, self.zeros, None,
            1.0, 0, torch.float32, "none", [None], "none",
        )  # fmt: skip
        mapped = torch.addcmul(self.bias, product, step)
        return mapped.reshape(*states.shape[:-1], mapped.shape[-1])
