"""Which state of an adaptation the probe should choose, and what the chosen ones are worth.

    python tests/bench/probe_choice.py --run DIR --encoder DIR --corpus DIR --shards DIR
    [--share 0.5] [--every 1] [--draws 100] [--set FIELD=VALUE …] [--json]

`--run` is a training by model.pretrain that began with `--encoder` and kept its checkpoints, for
example what adaptation_curve.py leaves in `--work`; `--set` gives settings that change what its
model holds. Each of its states, with `--share` of the published weights put back, judges train and
dev reviews. In each draw a probe as model.pretrain takes it (400 train labels, 1,000 dev reviews,
or most of the dev reviews where there are fewer) chooses a state by each rule; what that state is
worth is its accuracy on the dev reviews which that probe did not see, less the published encoder's.
Intervals are over dev reviews; the test split is never read.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))
from model.pretraining import checkpoint
from model.pretraining.adaptation.anchor import Anchor
from model.pretraining.adaptation.choice import Choice, Judged
from model.pretraining.adaptation.config import AdaptationConfig
from model.pretraining.adaptation.probe import (
    LONGEST,
    Probe,
    build_classifier,
    encode_reviews,
)
from model.pretraining.adaptation.selection import load_weights
from tests.bench.adaptation_recipes import compute_half_width, draw_balanced, open_training
from tests.bench.electra_plateau import format_settings

States = list[tuple[NDArray[np.float32], NDArray[np.float32]]]
"""Of each encoder those of the train reviews and of the dev reviews, [reviews, states]."""
Rule = Callable[[list[Judged]], int]
"""Returns the place of the state that is written, 0 the published encoder, by which dev reviews the
probe judges rightly of each.
"""


def choose_by_accuracies(seen: list[Judged]) -> int:
    """Return the last of the states that beat the published one and are as good as the best, each
    by the standard error of one accuracy, as model.pretrain did before it compared reviews.
    """
    accuracies = [float(judged.mean()) for judged in seen]
    origin = best = accuracies[0]
    margin = math.sqrt(origin * (1 - origin) / len(seen[0]))
    chosen = 0
    for place, accuracy in enumerate(accuracies):
        if accuracy > origin + margin and accuracy > best - margin:
            chosen = place
        best = max(best, accuracy)
    return chosen


def choose_as_training(seen: list[Judged], margin: float = 1.0) -> int:
    """Return the state that model.pretrain writes by this `probe_margin` alone."""
    choice, chosen = Choice(), 0
    for place, judged in enumerate(seen):
        choice.note(judged, AdaptationConfig(probe_margin=margin))
        chosen = place if choice.is_last_chosen else chosen
    return chosen


def choose_last(seen: list[Judged]) -> int:
    """Return the last state, whatever the probe says."""
    return len(seen) - 1


RULES: dict[str, Rule] = {
    "by the error of an accuracy, before": choose_by_accuracies,
    "probe_margin=2": partial(choose_as_training, margin=2.0),
    "probe_margin=1, the default before trusted_tokens": choose_as_training,
    "probe_margin=0": partial(choose_as_training, margin=0.0),
    "the last, write_last": choose_last,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, required=True, help="--output of model.pretrain")
    parser.add_argument("--encoder", type=Path, required=True, help="the published encoder")
    parser.add_argument("--corpus", type=Path, required=True, help="labels")
    parser.add_argument("--shards", type=Path, required=True, help="made with its vocabulary")
    parser.add_argument("--share", type=float, default=0.5, help="of published weights put back")
    parser.add_argument("--every", type=int, default=1, help="take each n-th checkpoint alone")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--set", nargs="*", default=[], help="settings of the training")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    config = AdaptationConfig(probe_train=2_000, probe_dev=100_000)
    probe = Probe.open(args.corpus, args.encoder, LONGEST, config)
    rows = compare_rules(*encode_states(args, probe), probe, args.draws)
    print(json.dumps({"rows": rows}) if args.json else render_table(rows))


def encode_states(args: argparse.Namespace, probe: Probe) -> tuple[list[int], States]:
    """Return the tokens and the states of the published encoder and of each checkpoint."""
    settings = {"objective": "mlm", **dict(text.split("=", 1) for text in args.set)}
    words = ["--output", args.run, "--shards", args.shards, "--start-from", args.encoder]
    words += ["--preset", "small", "--steps", "1", *format_settings(settings)]
    training, _ = open_training([str(word) for word in words])
    anchor = Anchor(training.model)  # before a checkpoint: it holds the published weights
    training.model.eval()
    tokens, states = [0], [encode(training, probe)]
    for path in checkpoint.list_checkpoints(args.run / "checkpoints")[args.every - 1 :: args.every]:
        state = checkpoint.load_state(path)
        load_weights(training.model, state)
        with anchor.averaged(args.share):
            states.append(encode(training, probe))
        tokens.append(state.numbers["totals"]["tokens"])
    return tokens, states


def encode(training: Any, probe: Probe) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    model, device = training.model, training.device
    train, dev = (encode_reviews(model, device, part) for part in (probe.train, probe.dev))
    return train, dev


def compare_rules(
    tokens: list[int], states: States, probe: Probe, draws: int
) -> list[dict[str, Any]]:
    """Return a row for each state always written, and one for each rule."""
    random = np.random.default_rng(0)
    count = len(probe.dev.labels)
    shown = min(1_000, count * 6 // 7)
    fixed: dict[str, Rule] = {
        f"always that after {n:,} tokens": lambda seen, place=place: place
        for place, n in enumerate(tokens)
        if place
    }
    rules = {**fixed, **RULES}
    gains = {name: np.zeros(count) for name in rules}
    chosen: dict[str, list[int]] = {name: [] for name in rules}
    judged = np.zeros(count)
    for _ in range(draws):
        right = judge_reviews(states, probe, random)
        hidden = random.permutation(count)[shown:]
        seen = [np.delete(row, hidden) for row in right]
        judged[hidden] += 1
        for name, rule in rules.items():
            place = rule(seen)
            chosen[name].append(place)
            gains[name][hidden] += right[place][hidden].astype(float) - right[0][hidden]
    was_judged = judged > 0
    return [
        {
            "rule": name,
            "tokens": float(np.mean([tokens[place] for place in chosen[name]])),
            "published": float(np.mean([place == 0 for place in chosen[name]])),
            "gain": float((by_review := gain[was_judged] / judged[was_judged]).mean()),
            "half_width": compute_half_width(by_review),
        }
        for name, gain in gains.items()
    ]


def judge_reviews(states: States, probe: Probe, random: np.random.Generator) -> list[Judged]:
    """Return which dev reviews each encoder's probe judges rightly, all from the same labels."""
    drawn = draw_balanced(probe.train.labels, 200, random)
    labels = probe.train.labels[drawn]
    return [
        build_classifier().fit(train[drawn], labels).predict(dev) == probe.dev.labels
        for train, dev in states
    ]


def render_table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown; accuracies in points."""
    lines = [
        "| state that is written | its tokens, on average | published is kept | less published |",
        "|---|---|---|---|",
    ]
    for row in rows:
        gain, half = 100 * row["gain"], 100 * row["half_width"]
        lines.append(
            f"| {row['rule']} | {row['tokens'] / 1e6:.2f} M | {row['published']:.0%} | "
            f"{gain:+.2f} ({gain - half:+.2f} to {gain + half:+.2f}) |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
