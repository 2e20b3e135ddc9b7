"""Masked language modelling, the control of ELECTRA (Devlin et al. 2019: 15% of the tokens, of
these 80% [MASK], 10% random, 10% kept); `mlm+nsp` adds next-sentence prediction from [CLS].
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from amazon_electra.model.architecture import Architecture
from amazon_electra.model.pretraining.network.encoder import Encoder, Linear, build_attention
from amazon_electra.model.pretraining.network.masked_prediction import (
    Batch,
    OwnModel,
    Step,
    Sums,
    TokenHead,
    compute_masked_means,
    gather_states,
)


class PairHead(nn.Module):
    """Maps [CLS] states to logits of "B follows A" and "B does not" (bert)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.pool = Linear(hidden, hidden)
        self.out = nn.Linear(hidden, 2)

    def forward(self, states: Tensor) -> Tensor:
        """Map [pairs, hidden] to [pairs, 2]."""
        logits: Tensor = self.out(torch.tanh(self.pool(states)).float())
        return logits


class MaskedLanguageModel(OwnModel):
    """One network; with objective `mlm+nsp` it also predicts whether two texts belong together."""

    trunk_name = "encoder"

    def add_networks(self, vocabulary_size: int, architecture: Architecture) -> None:
        self.encoder = Encoder(architecture, self.config.dropout)
        self.encoder_head = TokenHead(vocabulary_size, architecture)
        has_pairs = self.config.objective == "mlm+nsp"
        self.pair_head = PairHead(architecture.hidden) if has_pairs else None

    def forward(self, batch: Batch) -> Step:
        attention = build_attention(batch, self.dtype)
        embedded = self.embeddings(batch["masked_ids"], batch["positions"], batch.get("types"))
        states = self.encoder(embedded, attention)
        vectors = self.encoder_head(gather_states(states, batch["masked_positions"]))
        masked = self.encoder_head.compute_losses(vectors, self.embeddings.word, batch)
        loss = masked.loss / batch["masked_total"]
        sums = masked.sum_for_log("mlm", batch)
        sums["real"] = (batch["documents"] > 0).float().sum()
        if self.pair_head is not None:
            pair_loss, pair_sums = self._score_pairs(self.pair_head, states, batch)
            loss = loss + pair_loss / batch["pairs_total"]
            sums |= pair_sums
        return Step(loss, sums)

    def _score_pairs(self, head: PairHead, states: Tensor, batch: Batch) -> tuple[Tensor, Sums]:
        logits = head(gather_states(states, batch["pair_places"]))
        labels, weights = batch["pair_not_next"].flatten(), batch["pair_weights"].flatten()
        loss = (functional.cross_entropy(logits, labels, reduction="none") * weights).sum()
        right = ((logits.argmax(dim=1) == labels).float() * weights).sum()
        return loss, {"pairs": weights.sum(), "pair_loss": loss.detach(), "pair_right": right}

    def compute_means(self, sums: dict[str, float]) -> dict[str, float]:
        means = compute_masked_means("mlm", sums)
        loss = means["mlm_loss"]
        if "pairs" in sums:
            pairs = max(sums["pairs"], 1.0)
            means |= {
                "nsp_loss": sums["pair_loss"] / pairs,
                "nsp_accuracy": sums["pair_right"] / pairs,
            }
            loss += means["nsp_loss"]
        return {"loss": loss, **means}
