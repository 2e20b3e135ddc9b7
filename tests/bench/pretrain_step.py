"""How fast a pre-training step is, against the plain one of transformers' two models, in turn in
one process.

    python tests/bench/pretrain_step.py [--shards DIR] [--recipe small] [--json]

The plain step: ElectraForMaskedLM and ElectraForPreTraining as they come, fp32, padded rows,
logits at every position, a Gumbel number for every logit. Its rows are as full as google's example
builder makes them. Times are processor seconds of one thread on a CPU (other work on the machine
disturbs them least), seconds of the clock on a GPU; of all rounds the median.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

sys.path.insert(0, str(Path(__file__).parents[2]))
from amazon_electra.model.device import Device, open_device
from amazon_electra.model.encoders import config as encoder_config
from amazon_electra.model.pretraining import loop
from amazon_electra.model.pretraining.assembly import build_training
from amazon_electra.model.pretraining.input.sequences import Shards
from amazon_electra.model.recipes import RECIPES, Recipe, apply_settings
from tests.model.synthetic_shards import write_shards

DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")
PLAIN_FILL = 0.659
"""How full google's example builder made rows of 128 tokens of 79,240 reviews (`git show
ed7f0f0:tests/bench/google_rows.py`)."""
FLOOR, FLOOR_FP32 = 5.0, 2.8
"""Smallest `ratio_real_tokens` with which the bench ends with 0; none with --json. Where there is
no bf16, 3.2 was measured."""


class Plain:
    """The step one writes first."""

    def __init__(self, recipe: Recipe, size: int, device: Device) -> None:
        shapes = {
            "generator": recipe.architecture.derive_generator(),
            "discriminator": recipe.architecture,
        }
        kinds = {"generator": ElectraForMaskedLM, "discriminator": ElectraForPreTraining}
        self.models = torch.nn.ModuleList(
            kinds[role](
                ElectraConfig(
                    **encoder_config.build_transformers_config(role, shape, size, recipe.max_length)
                    | dict.fromkeys(DROPOUTS, recipe.pretraining.dropout)
                )
            )
            for role, shape in shapes.items()
        ).to(device.torch)
        self.models.train()
        self.optimizer = torch.optim.AdamW(self.models.parameters(), lr=1e-4)

    def step(self, ids: Tensor, attention: Tensor, mask_id: int) -> None:
        generator, discriminator = self.models
        chosen = (torch.rand(ids.shape, device=ids.device) < 0.15) & (attention > 0)
        masked = torch.where(chosen, mask_id, ids)
        logits = generator(input_ids=masked, attention_mask=attention).logits
        loss = functional.cross_entropy(logits.transpose(1, 2), torch.where(chosen, ids, -100))
        noise = -torch.log(torch.empty_like(logits).exponential_())
        sampled = (logits.detach() + noise).argmax(dim=2)
        corrupted = torch.where(chosen, sampled, ids)
        replaced = (corrupted != ids).float()
        detection = discriminator(input_ids=corrupted, attention_mask=attention).logits
        per_token = (
            functional.binary_cross_entropy_with_logits(detection, replaced, reduction="none")
            * attention
        )
        (loss + 50 * per_token.sum() / attention.sum()).backward()
        torch.nn.utils.clip_grad_norm_(self.models.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def clock(device: Device) -> float:
    device.wait()
    return time.process_time() if device.kind == "cpu" else time.perf_counter()


def measure(recipe: Recipe, shards: Shards, device: Device, rounds: int) -> dict[str, float]:
    batch, length = recipe.pretraining.batch, shards.max_length
    with tempfile.TemporaryDirectory() as folder:
        training = build_training(recipe, shards, device, Path(folder))
    training.model.train()
    plain = Plain(recipe, shards.vocabulary_size, device)
    batches = training.batches.iterate_steps(0)
    ids = torch.as_tensor(next(batches)["input_ids"], device=device.torch)
    attention = torch.ones_like(ids)
    ours, theirs, real = [], [], []
    for number in range(rounds + 2):
        arrays = next(batches)
        started = clock(device)
        loop.run_step(training, arrays)
        between = clock(device)
        torch.set_float32_matmul_precision("highest")
        plain.step(ids, attention, training.batches.special.mask)
        ended = clock(device)
        torch.set_float32_matmul_precision("medium")
        if number >= 2:
            ours.append(between - started)
            theirs.append(ended - between)
            real.append(float(arrays["real_total"]) / (batch * length))
    our_seconds, their_seconds = statistics.median(ours), statistics.median(theirs)
    products = training.count_matrix_flops(arrays)
    fill = statistics.mean(real)
    tokens = batch * length * fill / our_seconds
    return {
        "ratio_positions": their_seconds / our_seconds,
        "ratio_real_tokens": their_seconds / our_seconds * fill / PLAIN_FILL,
        "tokens_per_second": tokens,
        "matrix_flops_per_second": products / our_seconds,
        "fill": fill,
        "plain_fill": PLAIN_FILL,
        "plain_tokens_per_second": batch * length * PLAIN_FILL / their_seconds,
        "step_seconds": our_seconds,
        "plain_step_seconds": their_seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shards", type=Path, help="default: synthetic ones")
    parser.add_argument("--recipe", default="small", choices=sorted(RECIPES))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    recipe = apply_settings(RECIPES[arguments.recipe], {"batch": str(arguments.batch)})
    device = open_device(arguments.device, recipe.pretraining.precision)
    with tempfile.TemporaryDirectory() as folder:
        made = arguments.shards or write_shards(
            Path(folder), 2_000, recipe.vocabulary_size, recipe.max_length
        )
        shards = Shards.open(made)
        numbers = measure(recipe, shards, device, arguments.rounds)
    if arguments.json:
        print(json.dumps(numbers))
        return
    print(f"recipe {recipe.name}, batch {arguments.batch}, {device.kind}, {device.dtype}")
    for name, number in numbers.items():
        print(f"{name:26} {number:14,.3f}")
    if numbers["ratio_real_tokens"] < (floor := FLOOR if device.bf16 else FLOOR_FP32):
        sys.exit(f"ratio_real_tokens is below {floor}")


if __name__ == "__main__":
    main()
