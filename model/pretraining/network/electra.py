"""ELECTRA (Clark et al. 2020, arXiv 2003.10555), with one table of embeddings in both networks.
Losses are sums over totals of the whole batch, so that its parts add up exactly.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from amazon_electra.model.architecture import Architecture
from amazon_electra.model.pretraining.network.encoder import (
    Attention,
    Encoder,
    Linear,
    Score,
    build_attention,
)
from amazon_electra.model.pretraining.network.masked_prediction import (
    Batch,
    OwnModel,
    Scores,
    Step,
    Sums,
    TokenHead,
    compute_masked_means,
    gather_states,
)


class ReplacedHead(nn.Module):
    """Maps hidden states to one logit per token, above 0 where it looks replaced."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.dense = Linear(architecture.hidden, architecture.hidden)
        self.out = Score(architecture.hidden)

    def forward(self, states: Tensor) -> Tensor:
        """Map [sequences, length, hidden] to [sequences, length]."""
        logits: Tensor = self.out(functional.gelu(self.dense(states)).float()).squeeze(-1)
        return logits


class Electra(OwnModel):
    """Both networks on one table of embeddings; input/batches.py says what a batch holds."""

    trunk_name = "discriminator"

    def add_networks(self, vocabulary_size: int, architecture: Architecture) -> None:
        narrow = architecture.derive_generator()
        self.generator = Encoder(narrow, self.config.dropout)
        self.generator_head = TokenHead(vocabulary_size, narrow)
        self.discriminator = Encoder(architecture, self.config.dropout)
        self.discriminator_head = ReplacedHead(architecture)

    def forward(self, batch: Batch) -> Step:
        attention = build_attention(batch, self.dtype)
        vectors = self.propose_tokens(batch, attention)
        masked = self.generator_head.compute_losses(vectors, self.embeddings.word, batch)
        corrupted, replaced = corrupt_batch(batch, masked.sampled)
        real = (batch["documents"] > 0).float()
        states = self.encode_tokens(corrupted, batch, attention)
        logits = self.discriminator_head(states)
        cross_entropy = functional.binary_cross_entropy_with_logits
        replaced_loss = (cross_entropy(logits, replaced, reduction="none") * real).sum()
        loss = (
            self.config.generator_weight * masked.loss / batch["masked_total"]
            + self.config.discriminator_weight * replaced_loss / batch["real_total"]
        )
        sums = {
            **masked.sum_for_log("generator", batch),
            "discriminator_loss": replaced_loss.detach(),
            **_count_detections(logits.detach(), replaced, real),
        }
        return Step(loss, sums)

    def compute_means(self, sums: dict[str, float]) -> dict[str, float]:
        real = max(sums["real"], 1.0)
        means = {
            **compute_masked_means("generator", sums),
            "discriminator_loss": sums["discriminator_loss"] / real,
            "discriminator_accuracy": sums["discriminator_right"] / real,
            "discriminator_precision": sums["found"] / max(sums["said_replaced"], 1.0),
            "discriminator_recall": sums["found"] / max(sums["replaced"], 1.0),
            "replaced_fraction": sums["replaced"] / real,
        }
        weights = self.config.generator_weight, self.config.discriminator_weight
        loss = weights[0] * means["generator_loss"] + weights[1] * means["discriminator_loss"]
        return {"loss": loss, **means}

    def propose_tokens(self, batch: Batch, attention: Attention) -> Tensor:
        """Return the generator's vectors at masked positions, [sequences · slots, embedding]."""
        embedded = self.embeddings(batch["masked_ids"], batch["positions"], batch.get("types"))
        states = self.generator(embedded, attention)
        vectors: Tensor = self.generator_head(gather_states(states, batch["masked_positions"]))
        return vectors

    def encode_tokens(self, input_ids: Tensor, batch: Batch, attention: Attention) -> Tensor:
        """Return the discriminator's states of these ids, [sequences, length, hidden]."""
        embedded = self.embeddings(input_ids, batch["positions"], batch.get("types"))
        states: Tensor = self.discriminator(embedded, attention)
        return states

    def score_replacements(self, batch: Batch) -> Scores:
        attention = build_attention(batch, self.dtype)
        vectors = self.propose_tokens(batch, attention)
        sampled = self.generator_head.compute_losses(vectors, self.embeddings.word, batch).sampled
        corrupted, replaced = corrupt_batch(batch, sampled)
        states = self.encode_tokens(corrupted, batch, attention)
        real = (batch["documents"] > 0).cpu()
        logits = self.discriminator_head(states).float().cpu()
        return logits[real].numpy(), replaced.cpu()[real].numpy() > 0


def corrupt_batch(batch: Batch, sampled: Tensor) -> tuple[Tensor, Tensor]:
    """Return ids with the sampled ones, and 1.0 where a token differs, both [sequences, length]."""
    places = batch["masked_positions"]
    originals = batch["input_ids"].gather(1, places)
    put = torch.where(batch["masked_weights"] > 0, sampled.view_as(places), originals)
    corrupted = batch["input_ids"].scatter(1, places, put)
    return corrupted, (corrupted != batch["input_ids"]).float()


def _count_detections(logits: Tensor, replaced: Tensor, real: Tensor) -> Sums:
    """Return counts of tokens; the arguments are [sequences, length]."""
    said_replaced = (logits > 0).float() * real
    return {
        "real": real.sum(),
        "discriminator_right": ((said_replaced == replaced).float() * real).sum(),
        "replaced": replaced.sum(),
        "said_replaced": said_replaced.sum(),
        "found": (said_replaced * replaced).sum(),
    }
