"""Adapting an encoder in transformers' own module beside run_mlm: the same weights and sequences.

    python tests/bench/peers/adaptation.py [--layers 12] [--steps 4] [--rounds 3] [--json]

A RoBERTa of 768 and a vocabulary of 50,265, random weights, synthetic documents packed into
sequences of 128 tokens, 15% masked, fp32, one thread, AdamW, the gradient clipped at 1. The other
side is what examples/pytorch/language-modeling/run_mlm.py of huggingface/transformers does with
rows of full length: AutoModelForMaskedLM, DataCollatorForLanguageModeling and Trainer.train. It
lets tokens see other documents; ours does not. `Trainer, oneDNN` has the matrix products that
model/device.py chooses too. CPU seconds a step, of all steps the median; the sides take turns.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from transformers import (
    AutoModelForMaskedLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    PrinterCallback,
    RobertaConfig,
    RobertaForMaskedLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

sys.path.insert(0, str(Path(__file__).parents[3]))
from amazon_electra.model.device import open_device
from amazon_electra.model.pretraining import loop
from amazon_electra.model.pretraining.assembly import build_training
from amazon_electra.model.pretraining.defaults import choose_settings
from amazon_electra.model.pretraining.input.sequences import Shards
from amazon_electra.model.pretraining.network.initial_weights import Origin
from amazon_electra.model.recipes import RECIPES, apply_settings
from tests.bench.peers.environments import DEFAULT_CACHE, NoEnvironment, make_environment
from tests.model.synthetic_shards import write_shards, write_vocabulary

TRAINER = ["transformers==5.23.0", "accelerate==1.15.0"]
INSIDE = "--inside"
"""Given to the copy of this script that runs where the Trainer is installed."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--vocabulary", type=int, default=50_265)
    parser.add_argument("--batch", type=int, default=4, help="sequences of 128 tokens")
    parser.add_argument("--steps", type=int, default=2, help="of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--environments", type=Path, default=DEFAULT_CACHE)
    parser.add_argument("--json", action="store_true")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def write_encoder(folder: Path, args: argparse.Namespace) -> Path:
    write_vocabulary(folder, args.vocabulary)
    torch.manual_seed(0)
    config = RobertaConfig(
        vocab_size=args.vocabulary,
        num_hidden_layers=args.layers,
        hidden_size=args.hidden,
        intermediate_size=4 * args.hidden,
        num_attention_heads=args.hidden // 64,
        max_position_embeddings=130,
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=3,
    )
    RobertaForMaskedLM(config).save_pretrained(folder)
    return folder


def prepare_ours(folder: Path, args: argparse.Namespace) -> Callable[[], list[float]]:
    """Return what runs the steps of a round with our loop, and returns the CPU seconds of each."""
    torch.set_num_threads(1)
    origin, device = Origin(folder / "encoder", None), open_device("cpu", "fp32")
    given = {"steps": "1000", "batch": str(args.batch), "precision": "fp32", "dropout": "0.1"}
    settings = choose_settings(origin.main, given) | origin.read_settings() | given
    recipe = apply_settings(RECIPES["published"], settings)
    shards = Shards.open(folder / "shards")
    training = build_training(recipe, shards, device, folder / "ours", origin=origin)
    training.model.train()
    batches: Iterator = training.batches.iterate_steps(0)

    def run() -> list[float]:
        ends = [time.process_time()]
        for _ in range(args.steps):
            loop.run_step(training, next(batches))
            ends.append(time.process_time())
        return list(np.diff(ends))

    return run


class Clock(TrainerCallback):
    """Notes the CPU seconds at the end of each step; the first one allocates Adam's moments."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_: object, **__: object) -> None:
        self.ends.append(time.process_time())


def prepare_trainer(
    folder: Path, args: argparse.Namespace, matmul: str
) -> Callable[[], list[float]]:
    """Return what runs the steps of a round with the Trainer, and one before them."""
    encoder = folder / "encoder"
    [shard] = (folder / "shards").glob("*.parquet")
    ids = pq.read_table(shard, columns=["input_ids"])["input_ids"].to_pylist()
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    model = AutoModelForMaskedLM.from_pretrained(encoder, dtype=torch.float32)

    def run() -> list[float]:
        torch.set_float32_matmul_precision(matmul)
        clock = Clock()
        trainer = Trainer(
            model,
            TrainingArguments(
                output_dir=str(folder / "trainer"),
                use_cpu=True,
                max_steps=args.steps + 1,
                per_device_train_batch_size=args.batch,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                logging_steps=1_000,
            ),
            data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15),
            train_dataset=[{"input_ids": row} for row in ids],
            callbacks=[clock],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        return list(np.diff(clock.ends))

    return run


def measure(args: argparse.Namespace) -> list[dict]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_encoder(folder / "encoder", args)
        sequences = max(64, args.batch * (args.steps + 1))
        write_shards(folder / "shards", sequences, args.vocabulary, 128, shards=1, words=40)
        sides = {
            "ours": prepare_ours(folder, args),
            "Trainer": prepare_trainer(folder, args, "highest"),
            "Trainer, oneDNN": prepare_trainer(folder, args, "medium"),
        }
        seconds: dict[str, list[float]] = {side: [] for side in sides}
        for number in range(args.rounds + 1):
            for side, run in sides.items():
                torch.set_float32_matmul_precision("medium")
                found = run()
                if number:  # the first one warms up
                    seconds[side] += found
    medians = {side: statistics.median(found) for side, found in seconds.items()}
    return [
        {"side": side, "step_cpu_seconds": value, "against_ours": value / medians["ours"]}
        for side, value in medians.items()
    ]


def main() -> None:
    args = parse()
    if not args.inside:
        try:
            python = make_environment(
                "trainer", TRAINER, args.environments, shares_our_packages=True
            )
        except NoEnvironment as error:
            sys.exit(f"failed: {error}")
        sys.exit(subprocess.run([python, __file__, *sys.argv[1:], INSIDE]).returncode)
    rows = measure(args)
    if args.json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(f"{row['side']:16} {row['step_cpu_seconds']:8.2f} s {row['against_ours']:6.2f}")


if __name__ == "__main__":
    main()
