"""Masked language modelling on the same trunk, data and loop: the control ELECTRA is compared with at equal FLOPs.

Devlin et al. 2019: 15% of the tokens, of these 80% [MASK], 10% random, 10% kept; with `mlm+nsp` also next-sentence
prediction from [CLS] through a tanh pooler.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.presets import Architecture, PretrainingConfig
from model.pretraining.attention import within_documents
from model.pretraining.dropout import Noise
from model.pretraining.electra import Batch, Step, TokenHead, gather
from model.pretraining.encoder import Embeddings, Encoder, Linear, multiply_in


class PairHead(nn.Module):
    """[CLS] states → logits of "B follows A" and "it does not" (bert)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.pool = Linear(hidden, hidden)
        self.out = nn.Linear(hidden, 2)

    def forward(self, states: Tensor) -> Tensor:
        """[pairs, hidden] → [pairs, 2]."""
        logits: Tensor = self.out(torch.tanh(self.pool(states)).float())
        return logits


class MaskedLanguageModel(nn.Module):
    """One network; with objective `mlm+nsp` it also says whether two texts belong together."""

    def __init__(
        self,
        vocabulary_size: int,
        architecture: Architecture,
        config: PretrainingConfig,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config = config
        self.noise = Noise(config.dropout)
        self.dtype = dtype
        self.embeddings = Embeddings(vocabulary_size, architecture, self.noise)
        self.encoder = Encoder(architecture, self.noise)
        self.encoder_head = TokenHead(vocabulary_size, architecture)
        self.pair_head = PairHead(architecture.hidden) if config.objective == "mlm+nsp" else None
        multiply_in(self, dtype)

    def forward(self, batch: Batch) -> Step:
        """A batch of [sequences, length] each → its share of the loss, a scalar, and sums of its tokens."""
        attention = within_documents(batch, self.dtype)
        embedded = self.embeddings(batch["masked_ids"], batch["positions"], batch.get("types"))
        states = self.encoder(embedded, attention)
        vectors = self.encoder_head(gather(states, batch["masked_positions"]))
        losses = self.encoder_head.losses(vectors, self.embeddings.word, batch, self.config.temperature)
        token_loss, _, right = losses
        weights = batch["masked_weights"].flatten()
        loss = token_loss / batch["masked_total"]
        sums = {
            "masked": weights.sum(),
            "mlm_loss": token_loss.detach(),
            "mlm_right": (right * weights).sum(),
            "real": (batch["documents"] > 0).float().sum(),
        }
        if self.pair_head is not None:
            pair_loss, pair_sums = self._pairs(self.pair_head, states, batch)
            loss = loss + pair_loss / batch["pairs_total"]
            sums |= pair_sums
        return Step(loss, sums)

    def _pairs(self, head: PairHead, states: Tensor, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        logits = head(gather(states, batch["pair_places"]))
        labels, weights = batch["pair_not_next"].flatten(), batch["pair_weights"].flatten()
        loss = (functional.cross_entropy(logits, labels, reduction="none") * weights).sum()
        right = ((logits.argmax(dim=1) == labels).float() * weights).sum()
        return loss, {"pairs": weights.sum(), "pair_loss": loss.detach(), "pair_right": right}

    def describe(self, sums: dict[str, float]) -> dict[str, float]:
        """Sums of one or more steps → the means that are logged."""
        masked = max(sums["masked"], 1.0)
        means = {"mlm_loss": sums["mlm_loss"] / masked, "mlm_accuracy": sums["mlm_right"] / masked}
        loss = means["mlm_loss"]
        if "pairs" in sums:
            pairs = max(sums["pairs"], 1.0)
            means |= {"nsp_loss": sums["pair_loss"] / pairs, "nsp_accuracy": sums["pair_right"] / pairs}
            loss += means["nsp_loss"]
        return {"loss": loss, **means}
