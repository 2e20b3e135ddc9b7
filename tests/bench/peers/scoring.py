"""Scoring beside transformers' pipeline and ONNX Runtime: one fine-tuned network, one table.

    python tests/bench/peers/scoring.py --input 'dumps/*.json.gz' --model MODEL --rounds 3 [--json]

MODEL is a folder made by model.finetune from a BERT-like encoder, so that
transformers loads it whole. Each side labels the same reviews on one thread, 128 tokens at most,
in fp32, bf16 or int8 where it has them; ours loads the program that `model.scorer` writes. CPU
seconds of tokens and network, after a warm-up; loading is not in them. The sides take turns;
medians over the rounds.
A label counts as changed against that of the pipeline in fp32 (without the pipeline: ours in fp32).
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.bench.measuring import measure_commands
from tests.bench.peers.environments import NoEnvironment, make_environment, make_parser, run_bench
from tests.bench.peers.labelled_reviews import write_splits

HERE = Path(__file__).parent
PEERS = {
    "pipeline": (["transformers==5.23.0"], ("fp32", "bf16")),
    "onnxruntime": (["onnxruntime==1.32.0", "onnx==1.23.2"], ("fp32", "int8")),
}
"""Requirements of each, and its forms; the script is scoring_NAME.py beside this file."""


def parse() -> argparse.Namespace:
    p = make_parser(__doc__)
    p.add_argument("--model", type=Path, required=True, help="a folder made by model.finetune")
    p.add_argument("--reviews", type=int, default=500)
    p.add_argument("--forms", nargs="+", default=["fp32", "bf16", "int8"])
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(PEERS))
    return p.parse_args()


def run_sides(args: argparse.Namespace, folder: Path) -> list[dict]:
    """Run all sides in turn; return one row for each side and form."""
    write_splits(args.input, folder / "data", args.reviews)
    rows = (folder / "data" / "test.jsonl").read_text().splitlines()
    (folder / "texts.json").write_text(json.dumps([json.loads(row)["text"] for row in rows]))
    sides = list_our_sides(args, folder) | list_other_sides(args)
    runs: dict[tuple[str, str], list[dict]] = {side: [] for side in sides}
    for _ in range(args.rounds):
        for side, command in sides.items():
            output = folder / "out.json"
            measure_commands([[*command, folder / "texts.json", output]], args.checkout)
            runs[side].append(json.loads(output.read_text()))
            print(*side, runs[side][-1]["seconds"], file=sys.stderr, flush=True)
    reference = runs.get(("pipeline", "fp32")) or next(iter(runs.values()))
    return [describe_runs(side, mine, reference[0]["labels"]) for side, mine in runs.items()]


def list_our_sides(args: argparse.Namespace, folder: Path) -> dict[tuple[str, str], list]:
    """Return the command of each of our forms, after its scorer was written."""
    sides = {}
    for form in args.forms:
        if form == "int8":
            continue
        scorer = folder / f"scorer-{form}"
        export = [sys.executable, "-m", "model.scorer", "--model", args.model.resolve()]
        export += ["--output", scorer, "--precision", form]
        measure_commands([export], args.checkout)
        sides["ours", form] = [sys.executable, HERE / "scoring_ours.py", scorer]
    return sides


def list_other_sides(args: argparse.Namespace) -> dict[tuple[str, str], list]:
    """Return the command of each form of the tools that can be installed; say why others cannot."""
    sides = {}
    for name in args.peers:
        requirements, forms = PEERS[name]
        try:
            python = make_environment(
                f"scoring-{name}", requirements, args.environments, shares_our_packages=True
            )
        except NoEnvironment as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        script = [python, HERE / f"scoring_{name}.py", args.model.resolve()]
        sides |= {(name, form): [*script, form] for form in forms if form in args.forms}
    return sides


def describe_runs(side: tuple[str, str], runs: list[dict], reference: list[int]) -> dict:
    labels = runs[0]["labels"]
    speeds = [len(labels) / run["seconds"] for run in runs]
    return {
        "side": side[0],
        "form": side[1],
        "reviews_per_cpu_second": round(statistics.median(speeds), 1),
        "labels_changed": sum(a != b for a, b in zip(labels, reference, strict=True)),
        "reviews": len(labels),
    }


if __name__ == "__main__":
    run_bench(parse(), run_sides)
