"""What gets ELECTRA off its plateau at a small budget: recipes at equal cost, judged by the
discriminator and by fine-tuning.

    python tests/bench/electra_plateau.py --corpus DIR --vocabulary DIR [--steps 2000]
    [--recipes ELECTRA MLM …] [--seeds 0 1 2] [--processes 1] [--work DIR] [--json]

Every recipe has the tiny preset's shape and as many matrix products as the first one, ELECTRA as
the preset says, takes for `--steps`. "disentangled embeddings" are DeBERTa-v3's; "fixed generator"
is Fast-ELECTRA's, trained for half of the cost as a masked language model, with the temperature of
its samples falling from 2 to 1. AUC, effective rank and mean cosine are the discriminator's on dev
after the last step (0.5 and 1: a constant): the first AUC on its own generator's samples, which
are harder the better that is, the second on tokens drawn by their frequency, the same for all
recipes. Tokens and CPU seconds are those of the share in MLM, if any, and of what follows. Accuracy
is that of 200 balanced labels on 1,000 balanced test reviews, with one fine-tuning for each
pre-training seed. `by_seed` has all of each. What is finished in `--work` with as many steps is not
made again; the rows are written there too, rows.json. With 2,000 steps a recipe takes about 4 CPU
minutes for each seed. `--processes` is how many seeds train at the same time, of one thread each:
their CPU seconds grow then.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from model.evaluation import metrics
from model.evaluation.predictions import read_predictions
from model.evaluation.significance import compare_arms
from model.tracking.metrics_log import read_metrics
from tests.bench.small_budget import LENGTH, job

FINETUNING = {
    "n_train": "200",
    "n_dev": "200",
    "n_test": "1000",
    "epochs": "8",
    "sampling": "balanced",
    "balanced_test": "true",
    "learning_rates": "5e-4,2e-3,8e-3",
    "dropout": "0.1",
}
MEASURES = {
    "AUC": "discriminator_auc",
    "AUC, drawn": "fixed_auc",
    "rank": "discriminator_effective_rank",
    "cosine": "discriminator_mean_cosine",
}
"""Column of the table: measure of a validation, without its prefix."""
COSTS = ("tokens", "cpu_seconds")
MLM_COSTS = tuple(f"mlm_{name}" for name in COSTS)
LAST = [f"validation_{measure}" for measure in MEASURES.values()]
LAST += ["validation_generator_loss", "validation_mlm_loss"]


@dataclass(frozen=True)
class Recipe:
    """Settings besides the preset's; the first `mlm_share` of the cost trains a masked language
    model, which then becomes both networks. Recipes of one share begin with the same model.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    mlm_share: float = 0.0


FIRST = "ELECTRA"
RECIPES: Mapping[str, Recipe] = {
    FIRST: Recipe(),
    "MLM": Recipe({"objective": "mlm"}),
    "ELECTRA after half of the cost in MLM": Recipe(mlm_share=0.5),
    "ELECTRA after three quarters in MLM": Recipe(mlm_share=0.75),
    "discriminator weight 10": Recipe({"discriminator_weight": "10"}),
    "discriminator weight from 0 over half": Recipe({"discriminator_warmup": "0.5"}),
    "batch 64": Recipe({"batch": "64"}),
    "8% masked": Recipe({"mask_probability": "0.08"}),
    "temperature 0.5": Recipe({"temperature": "0.5"}),
    "learning rate 5e-4": Recipe({"learning_rate": "5e-4"}),
    "generator a quarter as wide": Recipe({"generator_multiplier": "0.25"}),
    "whole words": Recipe({"mask_unit": "word"}),
    "disentangled embeddings": Recipe({"embedding_sharing": "disentangled"}),
    "fixed generator": Recipe(
        {
            "embedding_sharing": "disentangled",
            "fixed_generator": "true",
            "first_temperature": "2",
        },
        mlm_share=0.5,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--vocabulary", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2_000, help="of ELECTRA (%(default)s)")
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--processes", type=int, default=1, help="seeds at the same time")
    parser.add_argument("--work", type=Path, help="folder to keep everything in")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="electra-plateau-") as scratch:
        rows = measure(chosen, chosen.work or Path(scratch))
    print(json.dumps(rows) if chosen.json else format_table(rows))


def measure(chosen: argparse.Namespace, work: Path) -> list[dict[str, Any]]:
    """Return a row for each recipe, and one for the random encoder."""
    folder = work / f"{chosen.steps}-steps"
    folder.mkdir(parents=True, exist_ok=True)
    shards = {split: pack(chosen, work / f"shards-{split}", split) for split in ("pretrain", "dev")}
    rows, predicted = [], {}
    for name in dict.fromkeys([FIRST, *chosen.recipes]):
        with ThreadPoolExecutor(chosen.processes) as pool:
            begin = partial(train, chosen, folder, shards, name)
            runs = list(pool.map(begin, chosen.seeds))
        encoders = [["--encoder", run["encoder"]] for run in runs]
        predicted[name] = finetune(chosen, folder, name, encoders)
        rows.append(describe(name, runs, predicted, folder, chosen.seeds))
    shape = train(chosen, folder, shards, FIRST, chosen.seeds[0])["encoder"]
    random = ["--encoder", "random", "--architecture", shape]
    predicted["random"] = finetune(chosen, folder, "random", [random] * len(chosen.seeds))
    rows.append(describe("random", [], predicted, folder, chosen.seeds))
    (folder / "rows.json").write_text(json.dumps(rows, indent=1))
    return rows


def pack(chosen: argparse.Namespace, folder: Path, split: str) -> Path:
    job(
        "beam_jobs.shards_job",
        folder,
        *("--corpus", chosen.corpus, "--vocabulary", chosen.vocabulary),
        *("--max_length", LENGTH, "--split", split),
    )
    return folder


def train(
    chosen: argparse.Namespace, work: Path, shards: Mapping[str, Path], name: str, seed: int
) -> dict[str, Any]:
    """Return the result of a recipe's last pre-training, with what a first one in MLM cost."""
    recipe = RECIPES[name]
    common = ["--shards", shards["pretrain"], "--validation", shards["dev"], "--preset", "tiny"]
    common += ["--threads", 1]
    if name == FIRST:
        return job(
            "model.pretrain",
            locate_run(work, name, seed),
            *(*common, "--steps", chosen.steps, *format_settings({"seed": seed})),
        )
    cost = train(chosen, work, shards, FIRST, chosen.seeds[0])["matrix_flops"]
    settings = {**recipe.settings, "seed": seed}
    spent = {}
    if recipe.mlm_share:
        begun = job(
            "model.pretrain",
            locate_run(work, f"MLM for {recipe.mlm_share:.0%}", seed),
            *(*common, "--budget", f"{recipe.mlm_share * cost:.0f}flops"),
            *format_settings({"objective": "mlm", "seed": seed}),
        )
        common += ["--start_from", begun["encoder"]]
        if "fixed_generator" in settings:
            common += ["--start_generator_from", begun["encoder"]]
        settings["objective"] = "electra"
        spent = {own: begun[name] for own, name in zip(MLM_COSTS, COSTS, strict=True)}
    budget = f"{(1 - recipe.mlm_share) * cost:.0f}flops"
    output = locate_run(work, name, seed)
    words = [*common, "--budget", budget, *format_settings(settings)]
    return job("model.pretrain", output, *words) | spent


def finetune(
    chosen: argparse.Namespace, work: Path, name: str, starts: list[list[str]]
) -> list[Any]:
    """Return the predictions on test of one fine-tuning for each start."""

    def finetune_once(seed: int, start: list[str]) -> Any:
        cell = locate_run(work, f"{name} polarity", seed)
        about = ["--task", "polarity", "--data", chosen.corpus, "--preset", "tiny", "--seed", seed]
        settings = format_settings(FINETUNING)
        job("model.finetune", cell, *start, *about, "--evaluation", cell / "test", *settings)
        return read_predictions(cell / "test" / "predictions.parquet")

    with ThreadPoolExecutor(chosen.processes) as pool:
        return list(pool.map(finetune_once, chosen.seeds, starts))


def describe(
    name: str,
    runs: list[dict[str, Any]],
    predicted: Mapping[str, list[Any]],
    work: Path,
    seeds: list[int],
) -> dict[str, Any]:
    """Return the row of a recipe: means over its seeds, what each seed has, and the difference to
    the first recipe.
    """
    by_seed: list[dict[str, Any]] = [
        {"seed": seed, "accuracy": metrics.compute_metric("accuracy", one)}
        for seed, one in zip(seeds, predicted[name], strict=True)
    ]
    for own, run in zip(by_seed, runs, strict=False):  # random has no runs
        own |= {key: run[key] for key in (*COSTS, *MLM_COSTS, "matrix_flops") if key in run}
        line = read_last_validation(locate_run(work, name, own["seed"]))
        own |= {n.removeprefix("validation_"): line[n] for n in LAST if n in line}
    row: dict[str, Any] = {"recipe": name, "by_seed": by_seed}
    row |= {n: mean(own[n] for own in by_seed) for n in by_seed[0] if n != "seed"}
    if name != FIRST:
        found = compare_arms(metrics.METRICS["accuracy"], predicted[name], predicted[FIRST])
        row |= {"difference": found.difference, "low": found.low, "high": found.high, "p": found.p}
    return row


def read_last_validation(run: Path) -> dict[str, Any]:
    return [line for line in read_metrics(run) if any("validation_" in n for n in line)][-1]


def locate_run(work: Path, name: str, seed: int) -> Path:
    return work / f"{name} {seed}".replace(" ", "-").replace("%", "")


def format_settings(settings: Mapping[str, object]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


def format_table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table in Markdown; the random encoder's has no pre-training."""
    names = ["recipe", "tokens", "CPU s", "loss", *MEASURES, "accuracy", "difference"]
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    for row in rows:
        loss = row.get("generator_loss", row.get("mlm_loss"))
        cells = [
            row["recipe"],
            format_cost(row, "tokens", lambda count: f"{count / 1e6:.2f} M"),
            format_cost(row, "cpu_seconds", lambda seconds: f"{seconds:.0f}"),
            f"{loss:.2f}" if loss else "–",
            *(format_number(row.get(measure)) for measure in MEASURES.values()),
            f"{100 * row['accuracy']:.1f}",
            f"{100 * row['difference']:+.1f} ({100 * row['low']:+.1f} to {100 * row['high']:+.1f})"
            if "difference" in row
            else "–",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def format_cost(row: Mapping[str, Any], name: str, render: Callable[[float], str]) -> str:
    """Return what the share in MLM cost, if any, plus what followed; a dash for random ones."""
    return " + ".join(render(row[key]) for key in (f"mlm_{name}", name) if key in row) or "–"


def format_number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


if __name__ == "__main__":
    main()
