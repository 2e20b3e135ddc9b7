"""A generator of an objective that is none of ours is written, scored and read."""

from pathlib import Path

import torch
from safetensors.torch import load_file

from amazon_electra.model.pretraining import objectives
from amazon_electra.model.pretraining.network.encoder import Encoder, build_attention
from amazon_electra.model.pretraining.network.masked_prediction import (
    OwnModel,
    Step,
    TokenHead,
    compute_masked_means,
    gather_states,
)
from tests.model.pretraining.runs import SHAPE, add_generator, pretrain

SETTINGS = SHAPE | {"objective": "twins", "dropout": 0, "precision": "fp32"}


class TwinModel(OwnModel):
    """Two networks of unlike width that both predict masked tokens."""

    trunk_name = "encoder"

    def add_networks(self, vocabulary_size, architecture):
        narrow = architecture.derive_generator()
        self.encoder = Encoder(architecture, self.config.dropout)
        self.encoder_head = TokenHead(vocabulary_size, architecture)
        self.generator = Encoder(narrow, self.config.dropout)
        self.generator_head = TokenHead(vocabulary_size, narrow)

    def predict(self, name, batch):
        embedded = self.embeddings(batch["masked_ids"], batch["positions"], batch.get("types"))
        states = getattr(self, name)(embedded, build_attention(batch, self.dtype))
        head = getattr(self, f"{name}_head")
        vectors = head(gather_states(states, batch["masked_positions"]))
        return head.compute_losses(vectors, self.embeddings.word, batch)

    def forward(self, batch):
        both = {name: self.predict(name, batch) for name in ("encoder", "generator")}
        loss = sum(one.loss for one in both.values()) / batch["masked_total"]
        sums = {k: v for name, one in both.items() for k, v in one.sum_for_log(name, batch).items()}
        return Step(loss, sums | {"real": (batch["documents"] > 0).float().sum()})

    def compute_means(self, sums):
        means = compute_masked_means("encoder", sums) | compute_masked_means("generator", sums)
        return {"loss": means["encoder_loss"] + means["generator_loss"], **means}

    def score_replacements(self, batch):
        found = self.predict("generator", batch)
        originals = batch["input_ids"].gather(1, batch["masked_positions"]).flatten()
        replaced = found.sampled != originals
        return replaced.float().numpy(), replaced.numpy()


class TwinObjective(objectives.Objective):
    name, losses, has_generator = "twins", ("encoder_loss", "generator_loss"), True
    network = f"{__name__}:TwinModel"

    def list_trunks(self, architecture):
        return [architecture, architecture.derive_generator()]


def test_it_is_written_scored_and_read(shards, dev_shards, tmp_path, monkeypatch):
    monkeypatch.setitem(objectives.OBJECTIVES, "twins", TwinObjective())
    words = ("--validation", dev_shards)
    first = pretrain(shards, tmp_path / "first", *words, steps=2, **SETTINGS)
    assert first["validation_discriminator_auc"] == 1.0
    written = load_file(Path(first["generator"]) / "model.safetensors")
    start = ("--start-from", add_generator(first["encoder"], first["generator"]))
    own = {name: value for name, value in SETTINGS.items() if name not in SHAPE}
    own |= {"batch": 8, "learning_rate": 1e-12}
    again = pretrain(shards, tmp_path / "again", *start, steps=1, **own)
    read = load_file(Path(again["generator"]) / "model.safetensors")
    layers = [name for name in written if ".encoder.layer." in name]
    assert layers
    for name in layers:
        torch.testing.assert_close(read[name], written[name], atol=1e-6, rtol=0)
    assert "discriminator" not in first
