"""Masked language modelling on transformers' own module, for encoders that ours does not hold.
Packed sequences stay packed where the module takes a mask between tokens, and positions; else each
document is a row of its own (`find_layout`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers.modeling_outputs import BaseModelOutput

from amazon_electra.model.config import PretrainingConfig
from amazon_electra.model.pretraining.input.batches import find_documents
from amazon_electra.model.pretraining.network.encoder import FAR_BELOW, build_mask
from amazon_electra.model.pretraining.network.masked_prediction import (
    Batch,
    PretrainingModel,
    Step,
    compute_masked_means,
    gather_states,
)

DROPOUTS = (
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout"),
    *("embedding_dropout", "mlp_dropout", "pos_dropout"),
)
"""The names that architectures give their rates of dropout in config.json."""
SAME = 1e-4
"""Difference of states relative to their size, below which a document is encoded as it is alone."""
LENGTH_STEP = 16
"""Tokens: rows of documents are padded to multiples of it."""


@dataclass(frozen=True)
class Layout:
    """How a module is given packed sequences."""

    is_packed: bool
    first_position: int = 0
    """Position of a document's first token: RoBERTa counts from the one after the padding's id."""
    window: int | None = None
    """Tokens that local layers see on each side; None: there are no such layers."""


class TransformersMlm(PretrainingModel):
    """A module of AutoModelForMaskedLM that learns to predict masked tokens."""

    trunk_name = "encoder"

    def __init__(
        self,
        network: Any,
        config: PretrainingConfig,
        dtype: torch.dtype = torch.float32,
        longest: int = 128,
    ) -> None:
        """Take a network of transformers; `longest` is the length of the sequences, in tokens."""
        super().__init__(config, dtype)
        self.network = network
        self.layout = find_layout(network, longest)
        rates = {name: getattr(network.config, name, None) for name in DROPOUTS}
        self.changed_config = {n: rate for n, rate in rates.items() if isinstance(rate, float)}
        set_dropout(network, config.dropout)

    @property
    def module(self) -> Any:
        return self.network

    def list_trunk_names(self) -> set[str]:
        # a table that trunk and head share may have its name in the head
        trunk = {id(parameter) for parameter in self.network.base_model.parameters()}
        return {name for name, parameter in self.named_parameters() if id(parameter) in trunk}

    def forward(self, batch: Batch) -> Step:
        originals = batch["input_ids"].gather(1, batch["masked_positions"]).flatten()
        weights = batch["masked_weights"].flatten()
        logits = self._predict_masked(batch)
        losses = functional.cross_entropy(logits.float(), originals, reduction="none")
        loss = (losses * weights).sum()
        right = ((logits.argmax(dim=1) == originals).float() * weights).sum()
        sums = {"masked": weights.sum(), "mlm_loss": loss.detach(), "mlm_right": right}
        real = (batch["documents"] > 0).float().sum()
        return Step(loss / batch["masked_total"], sums | {"real": real})

    def _predict_masked(self, batch: Batch) -> Tensor:
        """Return the head's logits of the masked tokens, [sequences · slots, vocabulary]."""
        ids, states = batch["masked_ids"], batch["masked_ids"].new_zeros((), dtype=torch.float32)
        calls, kind = list(lay_out(self.network, self.layout, ids, batch)), ids.device.type
        with torch.autocast(kind, self.dtype, enabled=self.dtype != torch.float32):
            for inputs, places in calls[:-1]:
                states = _put(states, self.network.base_model(**inputs)[0], places, ids)
            inputs, places = calls[-1]

            def hand_masked(_: Any, __: Any, output: Any) -> BaseModelOutput:
                whole = output[0] if places is None else _put(states, output[0], places, ids)
                return BaseModelOutput(gather_states(whole, batch["masked_positions"])[None])

            handle = self.network.base_model.register_forward_hook(hand_masked)
            try:
                logits: Tensor = self.network(**inputs).logits[0]
            finally:
                handle.remove()
        return logits

    def compute_means(self, sums: dict[str, float]) -> dict[str, float]:
        means = compute_masked_means("mlm", sums)
        return {"loss": means["mlm_loss"], **means}


Call = tuple[dict[str, Tensor], Tensor | None]
"""Arguments of the module, and the places of its tokens in the batch, flattened, −1 for padding;
None: as in the batch."""


def lay_out(network: Any, layout: Layout, input_ids: Tensor, batch: Batch) -> Iterator[Call]:
    """Yield the calls of the module that encode a batch of packed sequences."""
    documents = batch["documents"]
    if layout.is_packed:
        mask: Any = build_mask(documents, torch.float32)
        if layout.window is not None:
            places = torch.arange(documents.shape[1], device=documents.device)
            is_far = (places[:, None] - places[None]).abs() > layout.window
            local = mask.masked_fill(is_far, FAR_BELOW)
            mask = {"full_attention": mask, "sliding_attention": local}
        positions = batch["positions"] + layout.first_position
        yield {"input_ids": input_ids, "attention_mask": mask, "position_ids": positions}, None
        return
    starts, lengths = find_documents(documents.cpu().numpy())
    padded = -(-lengths // LENGTH_STEP) * LENGTH_STEP
    padding = network.config.pad_token_id or 0
    for length in np.unique(padded):
        rows = padded == length
        longest = min(int(length), documents.shape[1])
        inside = np.arange(longest) < lengths[rows][:, None]
        numbers = np.where(inside, starts[rows][:, None] + np.arange(longest), -1)
        places = torch.from_numpy(numbers).to(input_ids.device)
        ids = input_ids.flatten()[places.clamp(min=0)].masked_fill(places < 0, padding)
        yield {"input_ids": ids, "attention_mask": (places >= 0).long()}, places


def _put(states: Tensor, rows: Tensor, places: Tensor | None, like: Tensor) -> Tensor:
    """Return states [sequences, length, hidden] with rows [documents, longest, hidden] in place."""
    assert places is not None
    if states.ndim == 0:
        states = rows.new_zeros((*like.shape, rows.shape[2]))
    inside = places >= 0
    flat = states.flatten(0, 1).index_put((places[inside],), rows[inside].to(states.dtype))
    return flat.view_as(states)


def set_dropout(network: Any, rate: float) -> None:
    for name in DROPOUTS:
        if isinstance(getattr(network.config, name, None), float | int):
            setattr(network.config, name, rate)
    for part in network.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = rate
        for name in ("attention_dropout", "dropout_prob", "drop_prob", "dropout"):
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, rate)


@torch.no_grad()
def find_layout(network: Any, longest: int) -> Layout:
    """Return how two documents in one sequence are encoded as each alone: packed, or by rows."""
    window = getattr(network.config, "sliding_window", None)
    first = (network.config.pad_token_id or 0) + 1
    cut = 3 * longest // 4
    numbers = torch.arange(longest)
    batch = {
        "documents": torch.where(numbers < cut, 1, 2)[None],
        "positions": torch.where(numbers < cut, numbers, numbers - cut)[None],
    }
    rows = network.get_input_embeddings().weight.shape[0]
    ids = torch.randint(5, rows, (1, longest), generator=torch.Generator().manual_seed(0))
    ids[ids == network.config.pad_token_id] = 5 if network.config.pad_token_id != 5 else 6
    was_training = network.training
    network.eval()
    try:
        alone = [network.base_model(input_ids=one)[0] for one in (ids[:, :cut], ids[:, cut:])]
        expected = torch.cat(alone, dim=1)
        for local in dict.fromkeys([None, window]):
            for position in (0, first):
                layout = Layout(True, position, local)
                inputs, _ = next(lay_out(network, layout, ids, batch))
                try:
                    found = network.base_model(**inputs)[0]
                except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, KeyError):
                    continue
                if (found - expected).abs().max() <= SAME * expected.abs().max():
                    return layout
    finally:
        network.train(was_training)
    return Layout(False)
