"""Ways to go on training a published encoder, by the probe on dev labels and by fine-tuning.

    python tests/bench/adaptation_recipes.py --encoder DIR --corpus DIR --shards DIR
    [--tokens 130000] [--recipes plain-2e-4 head-first …] [--averages 0.5] [--finetune 2]
    [--work DIR] [--json]

Each recipe goes over the same sequences; what it costs besides, and how much the probe falls or
rises, is in its row. `average 0.5` is the same trained trunk with half of the published weights put
back, at no cost. With --finetune N the N best recipes and the published encoder are fine-tuned on
200 labels, three seeds; accuracy is on dev: the test split is never read. A finished recipe in
--work is not trained again. MiniLM (6 layers of 384), 130,000 tokens, one thread of an AMD EPYC
with bf16: one to three CPU minutes a recipe, and 20 CPU seconds a probe.
"""

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from beam_jobs.job.files import write_json
from model import pretrain
from model.config import FinetuningSettings
from model.finetuning.fit import finetune
from model.finetuning.request import Request
from model.finetuning.start import Start
from model.finetuning.tasks import find_task
from model.options import PretrainOptions
from model.presets import Preset
from model.pretraining import outputs
from model.pretraining.adaptation.probe import ACCURACY
from model.pretraining.assembly import build_training
from model.pretraining.input.sequences import Shards

RECIPES: dict[str, dict[str, str]] = {
    "plain-2e-4": {"learning_rate": "2e-4"},
    "plain-5e-5": {"learning_rate": "5e-5"},
    "plain-2e-5": {"learning_rate": "2e-5"},
    "head-first": {"learning_rate": "5e-4", "head_steps": "0.3", "trunk_learning_rate": "5e-5"},
    "head-first-2e-4": {
        "learning_rate": "5e-4",
        "head_steps": "0.3",
        "trunk_learning_rate": "2e-4",
    },
    "head-first-fast": {
        "learning_rate": "2e-3",
        "head_steps": "0.4",
        "trunk_learning_rate": "1e-4",
    },
    "layer-wise": {
        "learning_rate": "5e-4",
        "head_steps": "0.3",
        "trunk_learning_rate": "2e-4",
        "layer_decay": "0.7",
    },
    "frozen-embeddings": {
        "learning_rate": "5e-4",
        "head_steps": "0.3",
        "trunk_learning_rate": "5e-5",
        "freeze_embeddings": "true",
    },
    "pull": {
        "learning_rate": "5e-4",
        "head_steps": "0.3",
        "trunk_learning_rate": "2e-4",
        "origin_pull": "100",
    },
    "distillation": {
        "learning_rate": "5e-4",
        "head_steps": "0.3",
        "trunk_learning_rate": "2e-4",
        "origin_distillation": "5",
    },
}
"""What each sets besides what all share; everything else is as in the preset."""
FINETUNING = FinetuningSettings(
    learning_rates=(3e-4,),
    epochs=5,
    max_length=64,
    batch=8,
    layer_decay=0.9,
    pooling="mean",
    n_train=200,
    n_dev=1000,
    sampling="balanced",
    balanced_test=True,
    evaluations_per_epoch=1,
)


def main() -> None:
    args = parse()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="adaptation-recipes-") as scratch:
        rows = measure_recipes(args, Path(args.work or scratch))
    print(json.dumps({"rows": rows}) if args.json else render_table(rows))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", type=Path, required=True, help="the published encoder")
    parser.add_argument("--corpus", type=Path, required=True, help="labels of the probe")
    parser.add_argument("--shards", type=Path, required=True, help="made with its vocabulary")
    parser.add_argument("--tokens", type=int, default=130_000, help="(default: %(default)s)")
    parser.add_argument("--batch", type=int, default=16, help="sequences (default: %(default)s)")
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument(
        "--averages", nargs="*", type=float, default=[0.5], help="shares of the published weights"
    )
    parser.add_argument("--finetune", type=int, default=0, help="best recipes to fine-tune")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="of fine-tuning")
    parser.add_argument("--precision", default="bf16", help="(default: %(default)s)")
    parser.add_argument("--set", nargs="*", default=[], help="more settings of all recipes")
    parser.add_argument("--work", help="keep everything in this folder")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def measure_recipes(args: argparse.Namespace, work: Path) -> list[dict[str, Any]]:
    """Return a row for each recipe and average, the best first, and one for the encoder itself."""
    rows: list[dict[str, Any]] = []
    for name in args.recipes:
        file = work / f"{name}.json"
        if not file.exists():
            write_json(file, {"rows": train_recipe(args, name, work / name)})
        rows += json.loads(file.read_text())["rows"]
        print(json.dumps(rows[-1 - len(args.averages) :]), file=sys.stderr)
    rows.sort(key=lambda row: -row["probe"])
    published = {"recipe": "published", "average": 1.0, "probe": rows[0]["origin_probe"]}
    published |= {"origin_probe": published["probe"], "tokens": 0, "cpu_seconds": 0.0}
    rows.insert(0, published | {"encoder": str(args.encoder)})
    for seed in args.seeds if args.finetune else []:
        for row in rows[: args.finetune + 1]:
            row.setdefault("dev", []).append(finetune_encoder(args, row, work, seed))
            print(json.dumps(row), file=sys.stderr)
    return rows


def train_recipe(args: argparse.Namespace, name: str, folder: Path) -> list[dict[str, Any]]:
    """Train by one recipe; return a row for the trained trunk and one for each average."""
    words = list_words(args, name, folder)
    result = pretrain.run(words)
    row = {
        "recipe": name,
        "tokens": result["tokens"],
        "cpu_seconds": result["cpu_seconds"],
        "loss": result["mlm_loss"],
        "origin_probe": result["probe_origin_accuracy"],
    }
    rows = [{**row, "average": 0.0, "probe": result["probe_last_accuracy"]}]
    training, _ = load_last_state(words)
    for share in args.averages:
        with training.anchor.averaged(share):
            accuracy = training.probe(training.model, training.device)[ACCURACY]
        rows.append({**row, "average": share, "probe": accuracy})
    return rows


def list_words(args: argparse.Namespace, name: str, folder: Path) -> list[str]:
    """Return the command line of model.pretrain by one recipe."""
    length = Shards.open(args.shards).max_length
    steps = str(math.ceil(args.tokens / (args.batch * length)))
    settings = {
        "objective": "mlm",
        "batch": str(args.batch),
        "precision": args.precision,
        "warmup": "0.1",
        "validate_every": steps,
        "checkpoint_every": steps,
        "log_every": "10",
        **RECIPES[name],
        **dict(text.split("=") for text in args.set),
    }
    sets = [word for item in settings.items() for word in ("--set", "=".join(item))]
    inputs = {
        "output": folder,
        "shards": args.shards,
        "start-from": args.encoder,
        "probe": args.corpus,
        "preset": "small",
        "steps": steps,
        "device": "cpu",
        "threads": 1,
    }
    return [*sets, *(str(word) for item in inputs.items() for word in (f"--{item[0]}", item[1]))]


def load_last_state(words: list[str]) -> tuple[Any, Preset]:
    """Return the training of a command line at its last checkpoint, and its preset."""
    arguments = pretrain.read_options(PretrainOptions, words, "", "")
    origin = pretrain.find_origin(arguments)
    preset = pretrain.configure_preset(arguments, origin)
    device = pretrain.open_device("cpu", preset.pretraining.precision)
    shards = Shards.open(arguments.shards)
    training = build_training(
        preset, shards, device, arguments.output, origin=origin, probe=arguments.probe
    )
    pretrain.resume_training(training)
    return training, preset


def finetune_encoder(args: argparse.Namespace, row: dict[str, Any], work: Path, seed: int) -> float:
    """Return the accuracy on dev of an encoder that is fine-tuned on 200 labels."""
    encoder = row.get("encoder") or str(export_encoder(args, row, work))
    request = Request(Start(encoder), find_task("polarity"), args.corpus, FINETUNING, seed=seed)
    output = work / "finetuned" / f"{row['recipe']}-{row['average']}-{seed}"
    accuracy: float = finetune(request, output, "cpu")["dev"]["accuracy"]
    return accuracy


def export_encoder(args: argparse.Namespace, row: dict[str, Any], work: Path) -> Path:
    """Write the last state of a recipe, averaged, as a folder to fine-tune; return it."""
    name, share = row["recipe"], row["average"]
    result = json.loads((work / name / "result.json").read_text())
    training, preset = load_last_state(list_words(args, name, work / name))
    training.anchor.average(share)
    training.folder = work / f"{name}-{share}"
    if not (training.folder / "encoder").exists():
        outputs.write_models(training, preset, Shards.open(args.shards), result)
    return training.folder / "encoder"


def render_table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    lines = ["| recipe | published share | tokens | CPU s | probe | fine-tuned on 200, dev |"]
    lines.append("|---|---|---|---|---|---|")
    for row in rows:
        dev = " ".join(f"{100 * accuracy:.1f}" for accuracy in row.get("dev", []))
        dev += f", mean {100 * mean(row['dev']):.1f}" if dev else "–"
        lines.append(
            f"| {row['recipe']} | {row['average']} | {row['tokens']:,} | {row['cpu_seconds']:.0f} "
            f"| {100 * row['probe']:.1f} | {dev} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
