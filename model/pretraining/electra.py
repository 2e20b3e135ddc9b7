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
from model.pretraining.attention import Attention, within_documents
from model.pretraining.dropout import Noise
from model.pretraining.encoder import Embeddings, Encoder, LayerNorm, Linear, multiply_in
from model.pretraining.vocabulary_loss import VocabularyLoss

Batch = dict[str, Tensor]
Sums = dict[str, Tensor]


@dataclass(frozen=True)
class Step:
    """What one forward pass gives."""

    loss: Tensor  # this part's share of the batch's loss
    sums: Sums  # for the log: sums over this part, detached


class TokenHead(nn.Module):
    """Hidden states → vectors that are compared with the word embeddings themselves (google, transformers)."""

    def __init__(self, vocabulary_size: int, architecture: Architecture) -> None:
        super().__init__()
        self.dense = Linear(architecture.hidden, architecture.embedding)
        self.norm = LayerNorm(architecture.embedding)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))

    def forward(self, states: Tensor) -> Tensor:
        """[tokens, hidden] → [tokens, embedding]."""
        vectors: Tensor = self.norm(functional.gelu(self.dense(states)))
        return vectors

    def logits(self, vectors: Tensor, word: Tensor) -> Tensor:
        """[tokens, embedding] → [tokens, vocabulary]."""
        kind = self.dense.products
        return functional.linear(vectors.to(kind), word.to(kind), self.bias.to(kind))

    def losses(self, vectors: Tensor, word: Tensor, batch: Batch, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
        """Of the masked tokens: the weighted sum of the losses, sampled ids, 1.0 where the best guess is right."""
        kind = self.dense.products
        originals = batch["input_ids"].gather(1, batch["masked_positions"]).flatten()
        weights, keys = batch["masked_weights"].flatten(), batch["keys"].flatten()
        arguments = word.to(kind), self.bias.to(kind), originals, weights, keys, temperature
        result: tuple[Tensor, Tensor, Tensor] = VocabularyLoss.apply(vectors.to(kind), *arguments)
        return result


class ReplacedHead(nn.Module):
    """Hidden states → one logit per token, above 0 where it looks replaced."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.dense = Linear(architecture.hidden, architecture.hidden)
        self.out = nn.Linear(architecture.hidden, 1)

    def forward(self, states: Tensor) -> Tensor:
        """[sequences, length, hidden] → [sequences, length]."""
        logits: Tensor = self.out(functional.gelu(self.dense(states)).float()).squeeze(-1)
        return logits


class Electra(nn.Module):
    """Both networks on one table of embeddings; what a batch must hold is in batches.py."""

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
        narrow = architecture.generator()
        self.dtype = dtype
        self.embeddings = Embeddings(vocabulary_size, architecture, self.noise)
        self.generator = Encoder(narrow, self.noise)
        self.generator_head = TokenHead(vocabulary_size, narrow)
        self.discriminator = Encoder(architecture, self.noise)
        self.discriminator_head = ReplacedHead(architecture)
        multiply_in(self, dtype)

    def forward(self, batch: Batch) -> Step:
        """A batch of [sequences, length] each → its share of the loss, a scalar, and sums of its tokens."""
        attention = within_documents(batch, self.dtype)
        vectors = self.propose(batch, attention)
        token_loss, sampled, right = self.generator_head.losses(
            vectors, self.embeddings.word, batch, self.config.temperature
        )
        corrupted, replaced = corrupt(batch, sampled)
        real = (batch["documents"] > 0).float()
        logits = self.detect(corrupted, batch["positions"], attention)
        replaced_loss = (functional.binary_cross_entropy_with_logits(logits, replaced, reduction="none") * real).sum()
        loss = (
            self.config.generator_weight * token_loss / batch["masked_total"]
            + self.config.discriminator_weight * replaced_loss / batch["real_total"]
        )
        weights = batch["masked_weights"].flatten()
        sums = {
            "masked": weights.sum(),
            "generator_loss": token_loss.detach(),
            "generator_right": (right * weights).sum(),
            "discriminator_loss": replaced_loss.detach(),
            **_detection(logits.detach(), replaced, real),
        }
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

    def propose(self, batch: Batch, attention: Attention) -> Tensor:
        """The generator's vectors for the masked positions, [sequences · slots, embedding]."""
        states = self.generator(self.embeddings(batch["masked_ids"], batch["positions"]), attention)
        vectors: Tensor = self.generator_head(gather(states, batch["masked_positions"]))
        return vectors

    def detect(self, input_ids: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        """The discriminator's logits, [sequences, length]."""
        states = self.discriminator(self.embeddings(input_ids, positions), attention)
        logits: Tensor = self.discriminator_head(states)
        return logits


def gather(states: Tensor, places: Tensor) -> Tensor:
    """States [sequences, length, width] at places [sequences, slots] → [sequences · slots, width]."""
    return states.gather(1, places[:, :, None].expand(-1, -1, states.shape[2])).flatten(0, 1)


def corrupt(batch: Batch, sampled: Tensor) -> tuple[Tensor, Tensor]:
    """The sampled ids [sequences · slots] put into the original sequences, and 1.0 where that changed a token."""
    places = batch["masked_positions"]
    originals = batch["input_ids"].gather(1, places)
    put = torch.where(batch["masked_weights"] > 0, sampled.view_as(places), originals)
    corrupted = batch["input_ids"].scatter(1, places, put)
    return corrupted, (corrupted != batch["input_ids"]).float()


def _detection(logits: Tensor, replaced: Tensor, real: Tensor) -> Sums:
    """Counts of tokens, all [sequences, length] in."""
    said_replaced = (logits > 0).float() * real
    return {
        "real": real.sum(),
        "discriminator_right": ((said_replaced == replaced).float() * real).sum(),
        "replaced": replaced.sum(),
        "said_replaced": said_replaced.sum(),
        "found": (said_replaced * replaced).sum(),
    }
