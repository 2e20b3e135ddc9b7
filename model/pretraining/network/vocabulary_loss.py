"""Cross-entropy, samples and gradient of masked tokens in one pass over the logits, a few rows at a
time. Sampling draws a block of entries by its log-sum-exp, then an entry: by the chain rule what
the Gumbel-max trick draws, with 2 · sqrt(entries) random numbers a token.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from amazon_electra.model.pretraining.input.masking import draw_bits, to_uniform

# 32 rows of 30,522 fp32 logits are 4 MB; on other devices all rows at once
ROWS_AT_ONCE = {"cpu": 32, "cuda": 1 << 14}
# Entries are filled up to a multiple of this for the product alone: tensor cores want rows of whole
# 16 bytes, and 30,522 is no multiple of 8. What is filled up has the bias −∞, so the odds 0.
ENTRIES_MULTIPLE = {"cuda": 256}


class VocabularyLoss(torch.autograd.Function):
    """Gives the weighted sum of losses, sampled ids and 1.0 where the best guess is right."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,  # [tokens, embedding]
        word: Tensor,  # [vocabulary, embedding]
        bias: Tensor,  # [vocabulary]
        originals: Tensor,  # [tokens]
        weights: Tensor,  # [tokens]
        keys: Tensor,  # [tokens]
        compute: Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]],  # compute_rows
    ) -> tuple[Tensor, Tensor, Tensor]:
        tokens, ctx.entries = len(states), len(word)
        word, bias = _fill_up(word, bias, ENTRIES_MULTIPLE.get(states.device.type, 1))
        parts = -(-tokens // ROWS_AT_ONCE.get(states.device.type, tokens))
        rows = -(-tokens // parts)  # nearly as many in each
        losses, sampled, right, gradients = [], [], [], []
        for start in range(0, tokens, rows):
            part = slice(start, start + rows)
            logits = functional.linear(states[part], word, bias)
            loss, ids, best, gradient = compute(
                logits, originals[part], weights[part], keys[part], ctx.entries
            )
            losses.append(loss)
            sampled.append(ids)
            right.append(best)
            gradients.append(gradient)
        gradient = torch.cat(gradients) if len(gradients) > 1 else gradients[0]
        ctx.save_for_backward(states, word, gradient)
        result = torch.cat(losses).sum(), torch.cat(sampled), torch.cat(right)
        ctx.mark_non_differentiable(*result[1:])
        return result

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        states, word, gradient = ctx.saved_tensors
        scale = grad_outputs[0]
        by_states = (gradient @ word) * scale.to(states.dtype)
        by_word = None  # frozen embeddings need none, and it is as much work as the rest
        if ctx.needs_input_grad[1]:
            by_word = ((gradient.t() @ states) * scale.to(word.dtype))[: ctx.entries]
        summed = (gradient.new_ones(1, len(gradient)) @ gradient).squeeze(0)
        by_bias = (summed * scale.to(states.dtype))[: ctx.entries]
        return by_states, by_word, by_bias, None, None, None, None


def _fill_up(word: Tensor, bias: Tensor, multiple: int) -> tuple[Tensor, Tensor]:
    """Return both with entries that are never drawn, up to a multiple."""
    more = -len(word) % multiple
    if not more:
        return word, bias
    return functional.pad(word, (0, 0, 0, more)), functional.pad(bias, (0, more), value=-math.inf)


def compute_rows(
    logits: Tensor, originals: Tensor, weights: Tensor, keys: Tensor, entries: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return weighted losses, samples, right guesses and the gradient by the logits."""
    kind, logits = logits.dtype, logits.float()
    highest = logits.amax(dim=1, keepdim=True)
    own = logits.gather(1, originals[:, None])
    exponentials = (logits - highest).exp_()
    sampled = draw_ids(exponentials, keys, entries)
    total = exponentials.sum(dim=1, keepdim=True)
    losses = (total.log() + highest - own).squeeze(1) * weights
    right = (own >= highest).squeeze(1).float()
    gradient = exponentials.mul_(weights[:, None] / total)
    if gradient.is_cuda:  # compiled, this is no pass of its own
        is_own = torch.arange(gradient.shape[1], device=gradient.device) == originals[:, None]
        gradient = gradient - is_own * weights[:, None]
    else:
        gradient = gradient.scatter_add_(1, originals[:, None], -weights[:, None])
    return losses, sampled, right, gradient.to(kind)


def draw_ids(odds: Tensor, keys: Tensor, entries: int = 0) -> Tensor:
    """Draw ids [tokens] by odds [tokens, entries]; columns beyond `entries` (0: all) fill up."""
    tokens, columns = odds.shape
    entries = entries or columns
    width = 1 << math.ceil(math.log2(entries) / 2)
    blocks = -(-entries // width)
    needed = blocks * width
    padded = functional.pad(odds, (0, needed - columns)) if columns < needed else odds[:, :needed]
    padded = padded.reshape(tokens, blocks, width)
    noise = draw_gumbel(keys, blocks + width)
    block = (padded.sum(dim=2).log() + noise[:, :blocks]).argmax(dim=1)
    inside = padded.gather(1, block[:, None, None].expand(tokens, 1, width)).squeeze(1)
    return block * width + (inside.log() + noise[:, blocks:]).argmax(dim=1)


def draw_gumbel(keys: Tensor, numbers: int) -> Tensor:
    """Return [tokens, numbers] standard Gumbel numbers for keys [tokens] of 31 random bits."""
    return -torch.log(-torch.log(to_uniform(draw_bits(keys, numbers))))
