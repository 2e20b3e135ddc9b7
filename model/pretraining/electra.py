"""ELECTRA's training step: a small generator proposes tokens, the discriminator says which ones are not the original.

Clark et al. 2020, arXiv 2003.10555. The generator's vocabulary projection runs on the masked positions only; its
samples carry no gradient from the discriminator; word, position and type embeddings are one module in both
networks (google). Losses are sums divided by the totals of the whole batch over all devices, so that parts of a batch
add up exactly.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.presets import Architecture, PretrainingConfig
from model.pretraining.encoder import LAYER_NORM_EPSILON, Embeddings, Encoder, attention_mask
from model.pretraining.sampling import sample

Batch = dict[str, Tensor]
Sums = dict[str, Tensor]


@dataclass(frozen=True)
class Step:
    """What one forward pass gives."""

    loss: Tensor  # this part's share of the batch's loss
    sums: Sums  # for the log: sums over this part, detached


class TokenHead(nn.Module):
    """Hidden states → logits over the vocabulary, by the word embeddings themselves (google, transformers)."""

    def __init__(self, vocabulary_size: int, architecture: Architecture) -> None:
        super().__init__()
        self.dense = nn.Linear(architecture.hidden, architecture.embedding)
        self.norm = nn.LayerNorm(architecture.embedding, eps=LAYER_NORM_EPSILON)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))

    def forward(self, states: Tensor, word: Tensor) -> Tensor:
        """[tokens, hidden] → [tokens, vocabulary]."""
        return functional.linear(self.norm(functional.gelu(self.dense(states))), word, self.bias)


class ReplacedHead(nn.Module):
    """Hidden states → one logit per token, above 0 where it looks replaced."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.dense = nn.Linear(architecture.hidden, architecture.hidden)
        self.out = nn.Linear(architecture.hidden, 1)

    def forward(self, states: Tensor) -> Tensor:
        """[sequences, length, hidden] → [sequences, length]."""
        logits: Tensor = self.out(functional.gelu(self.dense(states))).squeeze(-1)
        return logits


class Electra(nn.Module):
    def __init__(self, vocabulary_size: int, architecture: Architecture, config: PretrainingConfig) -> None:
        super().__init__()
        self.config = config
        narrow = architecture.generator()
        self.embeddings = Embeddings(vocabulary_size, architecture, config.dropout)
        self.generator = Encoder(narrow, config.dropout)
        self.generator_head = TokenHead(vocabulary_size, narrow)
        self.discriminator = Encoder(architecture, config.dropout)
        self.discriminator_head = ReplacedHead(architecture)

    def forward(self, batch: Batch) -> Step:
        mask = attention_mask(batch["documents"])
        logits, originals = self.propose(batch, mask)
        weights = batch["masked_weights"].flatten()
        token_losses = functional.cross_entropy(logits.float(), originals, reduction="none") * weights
        sampled = sample(logits.detach(), batch["keys"].flatten(), self.config.temperature)
        corrupted, replaced = corrupt(batch, sampled)
        real = (batch["documents"] > 0).float()
        replaced_logits = self.detect(corrupted, batch["positions"], mask).float()
        replaced_losses = (
            functional.binary_cross_entropy_with_logits(replaced_logits, replaced, reduction="none") * real
        )
        loss = (
            self.config.generator_weight * token_losses.sum() / batch["masked_total"]
            + self.config.discriminator_weight * replaced_losses.sum() / batch["real_total"]
        )
        sums = _sums(logits, originals, weights, token_losses, replaced_logits, replaced, replaced_losses, real)
        return Step(loss, sums)

    def describe(self, sums: dict[str, float]) -> dict[str, float]:
        """Sums of one or more steps → the means that are logged."""
        masked, real = max(sums["masked"], 1.0), max(sums["real"], 1.0)
        means = {
            "generator_loss": sums["generator_loss"] / masked,
            "generator_accuracy": sums["generator_right"] / masked,
            "discriminator_loss": sums["discriminator_loss"] / real,
            "discriminator_accuracy": sums["discriminator_right"] / real,
            "discriminator_precision": sums["found"] / max(sums["said_replaced"], 1.0),
            "discriminator_recall": sums["found"] / max(sums["replaced"], 1.0),
            "replaced_fraction": sums["replaced"] / real,
        }
        weights = self.config.generator_weight, self.config.discriminator_weight
        return {"loss": weights[0] * means["generator_loss"] + weights[1] * means["discriminator_loss"], **means}

    def propose(self, batch: Batch, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The generator's logits at the masked positions [sequences · slots, vocabulary], the original ids there."""
        states = self.generator(self.embeddings(batch["masked_ids"], batch["positions"]), mask)
        places = batch["masked_positions"]
        gathered = states.gather(1, places[:, :, None].expand(-1, -1, states.shape[2])).flatten(0, 1)
        return self.generator_head(gathered, self.embeddings.word), batch["input_ids"].gather(1, places).flatten()

    def detect(self, input_ids: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """The discriminator's logits, [sequences, length]."""
        states = self.discriminator(self.embeddings(input_ids, positions), mask)
        logits: Tensor = self.discriminator_head(states)
        return logits


def corrupt(batch: Batch, sampled: Tensor) -> tuple[Tensor, Tensor]:
    """The sampled ids [sequences · slots] put into the original sequences, and 1.0 where that changed a token."""
    places = batch["masked_positions"]
    originals = batch["input_ids"].gather(1, places)
    put = torch.where(batch["masked_weights"] > 0, sampled.view_as(places), originals)
    corrupted = batch["input_ids"].scatter(1, places, put)
    return corrupted, (corrupted != batch["input_ids"]).float()


@torch.no_grad()
def _sums(
    logits: Tensor,
    originals: Tensor,
    weights: Tensor,
    token_losses: Tensor,
    replaced_logits: Tensor,
    replaced: Tensor,
    replaced_losses: Tensor,
    real: Tensor,
) -> Sums:
    said_replaced = (replaced_logits > 0).float() * real
    return {
        "masked": weights.sum(),
        "generator_loss": token_losses.sum().detach(),
        "generator_right": ((logits.argmax(dim=1) == originals).float() * weights).sum(),
        "real": real.sum(),
        "discriminator_loss": replaced_losses.sum().detach(),
        "discriminator_right": ((said_replaced == replaced).float() * real).sum(),
        "replaced": replaced.sum(),
        "said_replaced": said_replaced.sum(),
        "found": (said_replaced * replaced).sum(),
    }
