"""Ways to go on training a published encoder, by the probe on dev labels and by fine-tuning.

    python tests/bench/adaptation_recipes.py --encoder DIR --corpus DIR --shards DIR
    [--general DIR] [--tokens 130000] [--recipes plain-2e-4 head-first …] [--averages 0.5]
    [--pretraining_seeds 0] [--draws 50] [--finetune 2] [--device cpu] [--work DIR] [--json]

Each recipe goes over as many tokens; what it costs besides, and how much the probe falls or rises,
is in its row. `average 0.5` is the same trained trunk with half of the published weights put back,
at no cost. With --draws N the states of 2,000 train reviews are learned from in N draws of 200,
half of them positive, and measured on 1,500 balanced dev reviews: `difference` is the mean over the
draws less the published encoder's, its interval over the dev reviews. With --finetune N the N best
recipes and the published encoder are fine-tuned on 200 labels, three seeds, as a published encoder
is by default; accuracy is on 1,000 dev reviews, of the epoch that is best there. The test split is
never read. Figures are means over the pre-training seeds. A finished recipe in --work is not
trained again. MiniLM (6 layers of 384), 130,000 tokens, one thread of an AMD EPYC with bf16: one to
three CPU minutes a recipe, 20 CPU seconds a probe, and 100 a fine-tuning.
"""

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))
from beam_jobs.job.files import write_json
from model import pretrain
from model.config import FinetuningSettings
from model.finetuning.fit import finetune
from model.finetuning.request import Request
from model.finetuning.start import Start
from model.finetuning.tasks import find_task
from model.options import PretrainOptions
from model.presets import PUBLISHED_FINETUNING, Preset
from model.pretraining import outputs
from model.pretraining.adaptation.config import AdaptationConfig
from model.pretraining.adaptation.probe import (
    LONGEST,
    Probe,
    build_classifier,
    encode_reviews,
)
from model.pretraining.adaptation.recipe import NEW_HEAD_SETTINGS
from model.pretraining.assembly import build_training
from model.pretraining.input.sequences import Shards

HEAD_FIRST = {
    name: NEW_HEAD_SETTINGS[name] for name in ("learning_rate", "head_steps", "head_tokens")
}
RECIPES: dict[str, dict[str, str]] = {
    "plain-2e-4": {"learning_rate": "2e-4"},
    "plain-5e-5": {"learning_rate": "5e-5"},
    "head-first": {**HEAD_FIRST, "trunk_learning_rate": "1e-4"},
    "head-first-3e-5": {**HEAD_FIRST, "trunk_learning_rate": "3e-5"},
    "head-first-3e-4": {**HEAD_FIRST, "trunk_learning_rate": "3e-4"},
    "layer-wise": {**HEAD_FIRST, "trunk_learning_rate": "3e-4", "layer_decay": "0.7"},
    "frozen-embeddings": {
        **HEAD_FIRST,
        "trunk_learning_rate": "3e-4",
        "freeze_embeddings": "true",
    },
    "pull": {**HEAD_FIRST, "trunk_learning_rate": "3e-4", "origin_pull": "30"},
    "distillation": {**HEAD_FIRST, "trunk_learning_rate": "3e-4", "origin_distillation": "5"},
    "replay": {**HEAD_FIRST, "trunk_learning_rate": "3e-4"},
}
"""What each sets besides what all share; everything else is as in the preset."""
NO_DEFAULTS = {
    "head_steps": "0",
    "head_tokens": "0",
    "trunk_learning_rate": "0",
    "origin_average": "0",
}
"""In place of what a published encoder gets by default, which is one of the recipes."""
REPLAYED = "replay"
REPLAY_RATIO = "0.25"
"""Share of the sequences of that recipe which are general text."""
FINETUNING = FinetuningSettings(
    learning_rates=(float(PUBLISHED_FINETUNING["learning_rates"]),),
    epochs=float(PUBLISHED_FINETUNING["epochs"]),
    layer_decay=float(PUBLISHED_FINETUNING["layer_decay"]),
    dropout=float(PUBLISHED_FINETUNING["dropout"]),
    batch=16,
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
    parser.add_argument("--general", type=Path, help="shards of other text, for replay")
    parser.add_argument("--pretraining_seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--draws", type=int, default=0, help="of 200 labels for a probe")
    parser.add_argument("--finetune", type=int, default=0, help="best recipes to fine-tune")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="of fine-tuning")
    parser.add_argument("--precision", default="auto", help="(default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="(default: %(default)s)")
    parser.add_argument("--set", nargs="*", default=[], help="more settings of all recipes")
    parser.add_argument("--work", help="keep everything in this folder")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.general is None:
        args.recipes = [name for name in args.recipes if name != REPLAYED]
    return args


def measure_recipes(args: argparse.Namespace, work: Path) -> list[dict[str, Any]]:
    """Return a row for each recipe and average, the best first, and one for the encoder itself."""
    rows: list[dict[str, Any]] = []
    for name in args.recipes:
        of_seeds = [load_or_train(args, name, seed, work) for seed in args.pretraining_seeds]
        rows += [join_seeds(list(same)) for same in zip(*of_seeds, strict=True)]
        print(*map(json.dumps, rows[-1 - len(args.averages) :]), sep="\n", file=sys.stderr)
    rows.sort(key=lambda row: -row["probe"])
    published = {"recipe": "published", "average": 1.0, "probe": rows[0]["origin_probe"]}
    published |= {"probes": [published["probe"]], "tokens": 0, "cpu_seconds": 0.0}
    rows.insert(0, published | {"encoders": [str(args.encoder)]})
    if args.draws:
        add_differences(args, rows, work)
    for row in rows[: args.finetune + 1] if args.finetune else []:
        row["dev"] = [
            finetune_encoder(encoder, args.corpus, seed, work, args.device)
            for encoder in list_encoders(args, row, work)
            for seed in args.seeds
        ]
        print(json.dumps(row), file=sys.stderr)
    return rows


def load_or_train(
    args: argparse.Namespace, name: str, seed: int, work: Path
) -> list[dict[str, Any]]:
    """Return the rows of one pre-training, which is made where --work does not have it."""
    folder = locate_run(args, name, seed, work)
    file = folder.with_suffix(".json")
    if not file.exists():
        write_json(file, {"rows": train_recipe(args, name, seed, folder)})
    return json.loads(file.read_text())["rows"]


def locate_run(args: argparse.Namespace, name: str, seed: int, work: Path) -> Path:
    return work / "-".join([name, str(args.tokens), str(seed), *args.set])


def join_seeds(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row of a recipe: means over its pre-trainings, and each one's probe."""
    means = {key: mean(row[key] for row in rows) for key in rows[0] if key != "recipe"}
    return {"recipe": rows[0]["recipe"], **means, "probes": [row["probe"] for row in rows]}


def train_recipe(
    args: argparse.Namespace, name: str, seed: int, folder: Path
) -> list[dict[str, Any]]:
    """Train by one recipe; return a row for the trained trunk and one for each average."""
    words = list_words(args, name, seed, folder)
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
            accuracy = training.probe(training.model, training.device).mean()
        rows.append({**row, "average": share, "probe": accuracy})
    return rows


def list_words(args: argparse.Namespace, name: str, seed: int, folder: Path) -> list[str]:
    """Return the command line of model.pretrain by one recipe."""
    length = Shards.open(args.shards).max_length
    steps = str(math.ceil(args.tokens / (args.batch * length)))
    settings = {
        "objective": "mlm",
        "batch": str(args.batch),
        "precision": args.precision,
        "warmup": "0.1",
        "validate_every": steps,
        "checkpoint_every": "500",
        "keep_checkpoints": "1",
        "log_every": "10",
        "seed": str(seed),
        **NO_DEFAULTS,
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
        "device": args.device,
        "threads": 1,
    }
    if name == REPLAYED:
        inputs |= {"replay": args.general, "replay-ratio": REPLAY_RATIO}
    return [*sets, *(str(word) for item in inputs.items() for word in (f"--{item[0]}", item[1]))]


def load_last_state(words: list[str]) -> tuple[Any, Preset]:
    """Return the training of a command line at its last checkpoint, and its preset."""
    training, preset = open_training(words)
    pretrain.resume_training(training)
    return training, preset


def open_training(words: list[str]) -> tuple[Any, Preset]:
    """Return the training of a command line as it begins, and its preset."""
    arguments = pretrain.read_options(PretrainOptions, words, "", "")
    origin = pretrain.find_origin(arguments)
    preset = pretrain.configure_preset(arguments, origin)
    device = pretrain.open_device(arguments.device, preset.pretraining.precision)
    shards = Shards.open(arguments.shards)
    replay = None
    if arguments.replay:
        replay = pretrain.open_replay(shards, arguments.replay, arguments.replay_ratio)
    training = build_training(
        preset,
        shards,
        device,
        arguments.output,
        origin=origin,
        replay=replay,
        probe=arguments.probe,
    )
    return training, preset


def add_differences(args: argparse.Namespace, rows: list[dict[str, Any]], work: Path) -> None:
    """Add to each row the accuracy of a probe over draws of labels, and its difference to the
    published encoder with its interval over the dev reviews.
    """
    found = {}
    for name in args.recipes:
        for seed in args.pretraining_seeds:
            folder = locate_run(args, name, seed, work)
            found[name, seed] = load_or_draw(args, name, seed, folder)
    published = next(iter(found.values()))["1.0"]
    for row in rows:
        share = str(row["average"])
        if row["recipe"] == "published":
            row["drawn"] = float(published.mean())
            continue
        right = np.mean([found[row["recipe"], s][share] for s in args.pretraining_seeds], axis=0)
        difference = right - published
        row["drawn"] = float(right.mean())
        row["difference"] = float(difference.mean())
        row["half_width"] = compute_half_width(difference)


def compute_half_width(difference: NDArray[np.float64]) -> float:
    """Return half of the 95% interval of a mean over dev reviews."""
    return float(1.96 * difference.std(ddof=1) / math.sqrt(len(difference)))


def open_probe(args: argparse.Namespace) -> Probe:
    """Return the reviews that labels are drawn from, and those that are judged."""
    config = AdaptationConfig(probe_train=2_000, probe_dev=1_500)
    return Probe.open(args.corpus, args.encoder, LONGEST, config)


def load_or_draw(args: argparse.Namespace, name: str, seed: int, folder: Path) -> dict[str, Any]:
    """Return by share of the published weights how often each dev review is judged rightly."""
    file = folder.with_name(f"{folder.name}-{args.draws}-draws.npz")
    if not file.exists():
        training, _ = load_last_state(list_words(args, name, seed, folder))
        probe = open_probe(args)
        right = {}
        for share in (0.0, *args.averages, 1.0):
            with training.anchor.averaged(share):
                right[str(share)] = draw_labels(training, probe, args.draws)
        np.savez(file, **right)
    return dict(np.load(file))


def draw_labels(training: Any, probe: Probe, draws: int) -> NDArray[np.float64]:
    """Return the share of the draws of 200 labels by which a probe judges each dev review rightly,
    [reviews].
    """
    training.model.eval()
    train, dev = (
        encode_reviews(training.model, training.device, part) for part in (probe.train, probe.dev)
    )
    random = np.random.default_rng(0)
    right = np.zeros(len(probe.dev.labels))
    for _ in range(draws):
        drawn = draw_balanced(probe.train.labels, 100, random)
        classifier = build_classifier().fit(train[drawn], probe.train.labels[drawn])
        right += classifier.predict(dev) == probe.dev.labels
    return right / draws


def draw_balanced(
    labels: NDArray[np.int64], each: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """Return the places of `each` reviews of either label, fewer where the rarer one has fewer."""
    sides = [np.flatnonzero(labels == label) for label in (0, 1)]
    count = min(each, *map(len, sides))
    return np.concatenate([random.choice(side, count, replace=False) for side in sides])


def list_encoders(args: argparse.Namespace, row: dict[str, Any], work: Path) -> list[str]:
    """Return the folders of a recipe's trained encoders, one for each pre-training."""
    if "encoders" not in row:
        row["encoders"] = [
            str(export_encoder(args, row, locate_run(args, row["recipe"], seed, work), seed))
            for seed in args.pretraining_seeds
        ]
    return list(row["encoders"])


def export_encoder(args: argparse.Namespace, row: dict[str, Any], folder: Path, seed: int) -> Path:
    """Write the last state of a pre-training, averaged, as a folder to fine-tune; return it."""
    result = json.loads((folder / "result.json").read_text())
    training, preset = load_last_state(list_words(args, row["recipe"], seed, folder))
    training.anchor.average(row["average"])
    training.folder = folder.with_name(f"{folder.name}-average-{row['average']}")
    if not (training.folder / "encoder").exists():
        outputs.write_models(training, preset, Shards.open(args.shards), result)
    return training.folder / "encoder"


def finetune_encoder(encoder: str, corpus: Path, seed: int, work: Path, device: str) -> float:
    """Return the accuracy on dev of an encoder that is fine-tuned on 200 labels."""
    request = Request(Start(encoder), find_task("polarity"), corpus, FINETUNING, seed=seed)
    output = work / "finetuned" / f"{Path(encoder).parent.name}-{seed}"
    accuracy: float = finetune(request, output, device)["dev"]["accuracy"]
    return accuracy


def render_table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    names = ["recipe", "published share", "tokens", "CPU s", "loss", "probe"]
    names += ["probe over draws", "difference", "fine-tuned, dev"]
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    for row in rows:
        loss = f"{row['loss']:.2f}" if "loss" in row else "–"
        drawn = f"{100 * row['drawn']:.1f}" if "drawn" in row else "–"
        lines.append(
            f"| {row['recipe']} | {row['average']:g} | {row['tokens']:,.0f} "
            f"| {row['cpu_seconds']:.0f} | {loss} | {render_mean(row['probes'])} "
            f"| {drawn} | {render_difference(row)} "
            f"| {render_mean(row['dev']) if 'dev' in row else '–'} |"
        )
    return "\n".join(lines)


def render_difference(row: dict[str, Any]) -> str:
    """Return a row's difference to the published encoder with its interval, in points."""
    if "difference" not in row:
        return "–"
    difference, half = 100 * row["difference"], 100 * row["half_width"]
    return f"{difference:+.1f} ({difference - half:+.1f} to {difference + half:+.1f})"


def render_mean(shares: list[float]) -> str:
    """Return the mean and, if there are several, each of them, in per cent."""
    each = ", ".join(f"{100 * share:.1f}" for share in shares)
    return f"{100 * mean(shares):.1f} ({each})" if len(shares) > 1 else each


if __name__ == "__main__":
    main()
