"""Compute the layers of BERT-like networks of transformers on a CPU in one step each.

The parameters stay where transformers has them; only what a layer does forward and backward is
written out here, so that every state is converted to the type of the products once (autocast does
it for query, key, value and the feed-forward apart), query, key and value are one product, and
attention goes over a few texts at a time, whose scores stay in the cache. Numbers are those of
transformers under autocast: products in bf16, residuals and LayerNorm in fp32. A CPU that is slower
in bf16 than in fp32 multiplies the same rounded numbers in fp32, and rounds what comes out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.device import has_fast_bf16_products
from model.finetuning.network.cheap_dropout import CheapDropout, compute_attention

LAYERS = ("BertLayer", "ElectraLayer", "RobertaLayer", "XLMRobertaLayer", "CamembertLayer")
"""Classes of transformers that compute the same layer."""
ATTENTION_NAME = "amazon_electra_fused"
"""The name in transformers' registry under which a layer gets the mask [texts, tokens]."""
SCORES_AT_ONCE = 1 << 20
"""Attention scores computed together."""
TakeFactors = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Plan:
    """What one use of a layer needs besides states and weights."""

    heads: int
    epsilon: float
    kind: torch.dtype
    """Of the products' factors."""
    padding: Tensor | None
    """[texts, 1, 1, tokens], true where there is no token; None where there is one everywhere."""
    padding_start: int
    """Tokens before it are in every text."""
    attention_factors: TakeFactors | None
    """Returns keep factors in a tensor's shape and type; None: nothing is dropped."""
    hidden_factors: TakeFactors | None


def use_fused_layers(model: Any, first_token_only: bool = False) -> bool:
    """Let the layers of a network compute as written here, if all of them can; say whether.

    Where the head reads the first token alone, the last layer can give that alone: of its other
    tokens nothing but the states that come in is needed.
    """
    layers = [module for module in model.modules() if type(module).__name__ in LAYERS]
    if not layers or not all(_can_be_fused(layer) for layer in layers):
        return False
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(ATTENTION_NAME, compute_attention)
    AttentionMaskInterface.register(ATTENTION_NAME, _keep_padding_mask)
    model.set_attn_implementation(ATTENTION_NAME)
    for layer in layers:
        layer.forward = FusedForward(layer, first_token_only and layer is layers[-1])
    return True


def _can_be_fused(layer: Any) -> bool:
    activation = layer.intermediate.intermediate_act_fn
    return not layer.is_decoder and getattr(activation, "act", activation) is functional.gelu


def _keep_padding_mask(*_: Any, attention_mask: Tensor | None = None, **__: Any) -> Tensor | None:
    """Return true at tokens, [texts, tokens]; None where there is no padding."""
    return None if attention_mask is None or attention_mask.all() else attention_mask


class FusedForward:
    """Stands in the place of a layer's `forward`."""

    def __init__(self, layer: Any, first_token_only: bool) -> None:
        self.layer, self.first_token_only = layer, first_token_only

    def __call__(self, states: Tensor, mask: Tensor | None = None, *_: Any, **__: Any) -> Tensor:
        """Map [texts, tokens, hidden] to the same shape in fp32, or to [texts, 1, hidden]."""
        layer = self.layer
        attention, output = layer.attention.self, layer.attention.output
        is_bf16 = torch.is_autocast_enabled(states.device.type)
        plan = Plan(
            attention.num_attention_heads,
            layer.output.LayerNorm.eps,
            torch.bfloat16 if is_bf16 else torch.float32,
            None if mask is None else ~mask[:, None, None, :].bool(),
            0 if mask is None else int(mask.bool().all(0).cumprod(0).sum()),
            _find_factors(attention.dropout, layer.training),
            _find_factors(layer.output.dropout, layer.training),
        )
        with torch.autocast(states.device.type, enabled=False):
            if self.first_token_only:
                middle = _attend_from_first(plan, states, attention, output)
            else:
                qkv = [_join_heads(attention, name) for name in ("weight", "bias")]
                rest = _list_weights(output.dense, output.LayerNorm)
                middle = AttentionBlock.apply(plan, states, *qkv, *rest)
            after = layer.intermediate.dense, layer.output.dense, layer.output.LayerNorm
            result: Tensor = FeedForwardBlock.apply(plan, middle, *_list_weights(*after))
        return result


def _find_factors(dropout: nn.Module, is_training: bool) -> TakeFactors | None:
    if not is_training or not dropout.p:
        return None
    assert isinstance(dropout, CheapDropout), "fused layers take their dropout from a pool"
    return dropout.noise.take_factors


def _join_heads(attention: Any, name: str) -> Tensor:
    """Return the weights or biases of query, key and value in one; the query's hold the scale."""
    query, key, value = (
        getattr(linear, name) for linear in (attention.query, attention.key, attention.value)
    )
    return torch.cat([query * attention.attention_head_size**-0.5, key, value])


def _list_weights(*modules: Any) -> list[Tensor]:
    return [tensor for module in modules for tensor in (module.weight, module.bias)]


def _attend_from_first(plan: Plan, states: Tensor, attention: Any, output: Any) -> Tensor:
    """Return what AttentionBlock does for the first tokens, [texts, 1, hidden].

    No token's key or value is computed: a query times all keys is the query, mapped back by the
    key's weight, times the states, and the mix of values is the value's map of the mixed states. A
    key's bias adds the same to all scores, so it says nothing.
    """
    texts, _, hidden = states.shape
    narrow = states.to(plan.kind)
    query, key, value, mix = (
        linear.weight.to(plan.kind)
        for linear in (attention.query, attention.key, attention.value, output.dense)
    )
    asked = functional.linear(narrow[:, 0], query, attention.query.bias.to(plan.kind))
    asked = asked.view(texts, plan.heads, -1).transpose(0, 1) * (hidden // plan.heads) ** -0.5
    sought = torch.bmm(asked, key.view(plan.heads, -1, hidden)).transpose(0, 1)
    scores = torch.bmm(sought, narrow.transpose(1, 2)).float()
    if plan.padding is not None:
        scores = scores.masked_fill(plan.padding[:, :, 0], float("-inf"))
    probabilities = torch.softmax(scores, -1)
    if plan.attention_factors is not None:
        probabilities = probabilities * plan.attention_factors(probabilities)
    mixed = torch.bmm(probabilities.to(plan.kind), narrow).transpose(0, 1)
    values = torch.bmm(mixed, value.view(plan.heads, -1, hidden).transpose(1, 2)).transpose(0, 1)
    shares = probabilities.sum(-1, keepdim=True).to(plan.kind)
    values = values + shares * attention.value.bias.to(plan.kind).view(plan.heads, -1)
    change = functional.linear(
        values.reshape(texts, hidden), mix, output.dense.bias.to(plan.kind)
    ).float()
    if plan.hidden_factors is not None:
        change = change * plan.hidden_factors(change)
    normed: Tensor = output.LayerNorm(states[:, 0] + change)
    return normed.unsqueeze(1)


class AttentionBlock(torch.autograd.Function):
    """Query, key and value, attention, output, dropout, residual and LayerNorm."""

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, states: Tensor, weight: Tensor, bias: Tensor, mix: Tensor,
        mix_bias: Tensor, norm: Tensor, norm_bias: Tensor,
    ) -> Tensor:  # fmt: skip
        rows = states.reshape(-1, states.shape[-1])
        qkv = Product(rows, weight, bias, plan)
        attention = Attention(qkv.mapped.view(*states.shape[:-1], -1), plan)
        change = Product(attention.mixed.view(rows.shape), mix, mix_bias, plan)
        summed = NormedSum(rows, change.mapped, norm, norm_bias, plan)
        ctx.saved = qkv, attention, change, summed
        return summed.normed.view(states.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        qkv, attention, change, summed = ctx.saved
        ctx.saved = None
        shape = gradients[0].shape
        by_rows, by_change, *by_norm = summed.differentiate(gradients[0].reshape(-1, shape[-1]))
        by_mixed, *by_mix = change.differentiate(by_change)
        by_qkv = attention.differentiate(by_mixed.view(shape))
        by_more, *by_weight = qkv.differentiate(by_qkv.view(len(by_rows), -1))
        by_states = by_rows.add_(by_more).view(shape)
        return None, by_states, *by_weight, *by_mix, *by_norm


class FeedForwardBlock(torch.autograd.Function):
    """Up, GELU, down, dropout, residual and LayerNorm."""

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, states: Tensor, up: Tensor, up_bias: Tensor, down: Tensor,
        down_bias: Tensor, norm: Tensor, norm_bias: Tensor,
    ) -> Tensor:  # fmt: skip
        rows = states.reshape(-1, states.shape[-1])
        raised = Product(rows, up, up_bias, plan)
        change = Product(functional.gelu(raised.mapped), down, down_bias, plan)
        summed = NormedSum(rows, change.mapped, norm, norm_bias, plan)
        ctx.saved = raised, change, summed
        return summed.normed.view(states.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        raised, change, summed = ctx.saved
        ctx.saved = None
        shape = gradients[0].shape
        by_rows, by_change, *by_norm = summed.differentiate(gradients[0].reshape(-1, shape[-1]))
        by_active, *by_down = change.differentiate(by_change)
        by_raised = torch.ops.aten.gelu_backward(by_active, raised.mapped)
        by_more, *by_up = raised.differentiate(by_raised)
        by_states = by_rows.add_(by_more).view(shape)
        return None, by_states, *by_up, *by_down, *by_norm


class Product:
    """Rows [positions, inputs] mapped to [positions, outputs], factors and result in the plan's
    type.
    """

    def __init__(self, rows: Tensor, weight: Tensor, bias: Tensor, plan: Plan) -> None:
        self._rows, self._weight, bias = (
            _widen(factor.to(plan.kind)) for factor in (rows, weight, bias)
        )
        self.mapped = functional.linear(self._rows, self._weight, bias).to(plan.kind)

    def differentiate(self, by_mapped: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients by the rows, and in fp32 by weight and bias."""
        wide = _widen(by_mapped)
        by_rows = (wide @ self._weight).to(by_mapped.dtype)
        return by_rows, (wide.t() @ self._rows).float(), by_mapped.sum(0).float()


def _widen(factor: Tensor) -> Tensor:
    """Return a factor in the type in which this CPU multiplies such numbers fastest."""
    is_slow = factor.dtype == torch.bfloat16 and not has_fast_bf16_products()
    return factor.float() if is_slow else factor


class NormedSum:
    """LayerNorm of rows [positions, hidden] plus a change that is dropped out."""

    def __init__(
        self, rows: Tensor, change: Tensor, weight: Tensor, bias: Tensor, plan: Plan
    ) -> None:
        change = change.to(rows.dtype)
        self._factors = plan.hidden_factors(change) if plan.hidden_factors else None
        self._sum = (
            rows + change if self._factors is None else torch.addcmul(rows, change, self._factors)
        )
        self._weights, self._kind = (weight, bias), plan.kind
        self.normed, *self._moments = torch.native_layer_norm(
            self._sum, rows.shape[1:], weight, bias, plan.epsilon
        )

    def differentiate(self, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the gradients by the rows, by the change, by weight and by bias."""
        by_sum, by_weight, by_bias = torch.ops.aten.native_layer_norm_backward(
            gradient, self._sum, gradient.shape[1:], *self._moments, *self._weights, [True] * 3
        )
        return by_sum, _drop(by_sum, self._factors).to(self._kind), by_weight, by_bias


class Attention:
    """Attention of a few texts at a time: qkv [texts, tokens, 3 · hidden], mixed without the 3."""

    def __init__(self, qkv: Tensor, plan: Plan) -> None:
        self._qkv, self._plan = qkv, plan
        self._known: list[tuple[Tensor, Tensor, Tensor | None]] = []
        texts, tokens, width = qkv.shape
        self.mixed = qkv.new_empty(texts, tokens, width // 3)
        for part in self._list_parts():
            query, key, value = _split_heads(qkv[part], 3, plan.heads)
            scores = torch.bmm(query, key.transpose(1, 2))
            if plan.padding is not None:
                padding = plan.padding[part, ..., plan.padding_start :]
                late = scores.view(-1, plan.heads, tokens, tokens)[..., plan.padding_start :]
                late.masked_fill_(padding, float("-inf"))
            probabilities = torch.softmax(scores, -1)
            factors = plan.attention_factors(scores) if plan.attention_factors else None
            dropped = _drop(probabilities, factors)
            self._known.append((probabilities, dropped, factors))
            _put_heads(self.mixed[part], torch.bmm(dropped, value))

    def differentiate(self, by_mixed: Tensor) -> Tensor:
        """Return the gradient by qkv."""
        heads, hidden = self._plan.heads, by_mixed.shape[-1]
        by_qkv = torch.empty_like(self._qkv)
        for part, known in zip(self._list_parts(), self._known, strict=True):
            probabilities, dropped, factors = known
            query, key, value = _split_heads(self._qkv[part], 3, heads)
            [gradient] = _split_heads(by_mixed[part], 1, heads)
            by_value = torch.bmm(dropped.transpose(1, 2), gradient)
            by_known = _drop(torch.bmm(gradient, value.transpose(1, 2)), factors)
            by_scores = torch._softmax_backward_data(
                by_known, probabilities, -1, probabilities.dtype
            )
            by_query = torch.bmm(by_scores, key)
            by_key = torch.bmm(by_scores.transpose(1, 2), query)
            for k, found in enumerate((by_query, by_key, by_value)):
                _put_heads(by_qkv[part, :, k * hidden : (k + 1) * hidden], found)
        return by_qkv

    def _list_parts(self) -> list[slice]:
        texts, tokens, _ = self._qkv.shape
        size = max(1, SCORES_AT_ONCE // (self._plan.heads * tokens * tokens))
        return [slice(start, start + size) for start in range(0, texts, size)]


def _split_heads(states: Tensor, kinds: int, heads: int) -> Tensor:
    """Map [texts, tokens, kinds · hidden] to [kinds, texts · heads, tokens, width]."""
    texts, tokens, _ = states.shape
    apart = states.view(texts, tokens, kinds, heads, -1).permute(2, 0, 3, 1, 4)
    return apart.reshape(kinds, texts * heads, tokens, -1)


def _put_heads(states: Tensor, found: Tensor) -> None:
    """Write [texts · heads, tokens, width] into states [texts, tokens, hidden]."""
    texts, tokens, _ = states.shape
    by_text = found.view(texts, -1, tokens, found.shape[-1]).transpose(1, 2)
    states.unflatten(-1, by_text.shape[2:]).copy_(by_text)


def _drop(states: Tensor, factors: Tensor | None) -> Tensor:
    return states if factors is None else states * factors
