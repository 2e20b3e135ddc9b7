"""Our step against the plain one made of transformers' two models: same positions, same samples,
same losses and gradients.
"""

import pytest
import torch
from torch.nn import functional
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

from amazon_electra.model.encoders import config as encoder_config
from amazon_electra.model.encoders import export
from amazon_electra.model.encoders.weight_mapping import map_names
from amazon_electra.model.pretraining.network.encoder import build_attention
from amazon_electra.model.recipes import RECIPES, apply_settings
from tests.model.pretraining.runs import build

SIZE, LENGTH = 100, 32
SETTINGS = {"layers": "2", "hidden": "64", "intermediate": "256", "embedding": "32", "heads": "4"}
SETTINGS |= {"generator_multiplier": "0.5", "dropout": "0", "segment_probability": "0"}


NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def map_weights(role):
    """Return the shape of a network, and transformers' names of its weights."""
    shape = apply_settings(RECIPES["sample"], SETTINGS).architecture
    shape = shape if role == "discriminator" else shape.derive_generator()
    return shape, map_names(role, shape.layers, shape.embedding != shape.hidden)


def copy_to_transformers(ours):
    """transformers' generator and discriminator with our weights, their embeddings tied as google
    ties them.
    """
    models = []
    for role, kind in (("generator", ElectraForMaskedLM), ("discriminator", ElectraForPreTraining)):
        shape, mapping = map_weights(role)
        config = encoder_config.build_transformers_config(role, shape, SIZE, LENGTH) | NO_DROPOUT
        model = kind(ElectraConfig(**config, attn_implementation="eager"))
        weights = export.convert_to_transformers(dict(ours.named_parameters()), mapping)
        missing, unexpected = model.load_state_dict(weights, strict=False)
        assert not unexpected
        assert all("position_ids" in name or name == "generator_lm_head.weight" for name in missing)
        models.append(model.train())
    generator, discriminator = models
    generator.tie_weights()
    discriminator.electra.embeddings = generator.electra.embeddings
    return generator, discriminator


def plain_step(generator, discriminator, batch, sampled):
    """Logits at every position, a mask as transformers takes one, the losses as the paper writes
    them.
    """
    documents = batch["documents"]
    together = documents[:, None, :, None] == documents[:, None, None, :]
    mask = torch.where(together, 0.0, torch.finfo(torch.float32).min)
    common = {"attention_mask": mask, "position_ids": batch["positions"]}
    logits = generator(input_ids=batch["masked_ids"], **common).logits
    chosen = torch.zeros_like(documents, dtype=torch.bool)
    for row in range(len(documents)):
        chosen[row, batch["masked_positions"][row][batch["masked_weights"][row] > 0]] = True
    generator_loss = functional.cross_entropy(logits[chosen], batch["input_ids"][chosen])
    corrupted = batch["input_ids"].clone()
    used = batch["masked_weights"] > 0
    rows = torch.arange(len(documents))[:, None].expand_as(used)
    corrupted[rows[used], batch["masked_positions"][used]] = sampled.view_as(used)[used]
    replaced = (corrupted != batch["input_ids"]).float()
    detection = discriminator(input_ids=corrupted, **common).logits
    real = documents > 0
    detected = functional.binary_cross_entropy_with_logits(detection[real], replaced[real])
    return generator_loss, detected


def test_losses_and_every_gradient_equal_the_plain_step(shards, tmp_path):
    training = build(shards, tmp_path, **SETTINGS)
    batch = training.batches.mask(training.device.put(next(training.batches.iterate_steps(0))))
    ours = training.model.train()
    for name, parameter in ours.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.02)
    step = ours(batch)
    step.loss.backward()
    with torch.no_grad():
        vectors = ours.propose_tokens(batch, build_attention(batch))
        _, sampled, _ = ours.generator_head.compute_losses(vectors, ours.embeddings.word, batch)
    generator, discriminator = copy_to_transformers(ours)
    generator_loss, discriminator_loss = plain_step(generator, discriminator, batch, sampled)
    (generator_loss + 50.0 * discriminator_loss).backward()

    numbers = ours.compute_means({name: value.item() for name, value in step.sums.items()})
    assert numbers["generator_loss"] == pytest.approx(generator_loss.item(), abs=1e-5)
    assert numbers["discriminator_loss"] == pytest.approx(discriminator_loss.item(), abs=1e-5)
    gradients = {name: p.grad for name, p in ours.named_parameters()}
    compared = set()
    for role, model in (("generator", generator), ("discriminator", discriminator)):
        _, mapping = map_weights(role)
        expected = {name: p.grad for name, p in model.named_parameters()}
        for name, gradient in export.convert_to_transformers(gradients, mapping).items():
            torch.testing.assert_close(
                gradient, expected[name], atol=1e-5, rtol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
            )
        compared |= set(mapping)
    assert compared == set(gradients)
