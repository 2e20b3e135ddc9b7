"""How fast a step of contrastive adaptation is, beside sentence-transformers'
MultipleNegativesRankingLoss, in turn in one process.

    python tests/bench/contrastive_step.py --input 'dumps/*.json.gz' --encoder FOLDER [--steps 5]

Both train one network on the same batches of 128 titles and bodies, with AdamW, on one thread; the
other's attention and padding are as they come, its tokens are counted as ours, title and body cut
alike. Times are CPU seconds of the process; of all steps the median, without the first. The last
column is what 10,000 pairs take.
"""

import argparse
import glob
import gzip
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from amazon_electra.model.contrastive import Contrast, Texts, load_network
from amazon_electra.model.device import open_device
from amazon_electra.model.finetuning.network import load_tokenizer
from amazon_electra.model.options import ContrastiveConfig
from amazon_electra.model.pretraining.input.pairs import Pairs, find_reason


def read_pairs(pattern: str, count: int) -> Pairs:
    """Return the first pairs of title and body of a dump's files."""
    titles, bodies = [], []
    for path in sorted(glob.glob(pattern)):
        with gzip.open(path, "rt") if path.endswith(".gz") else open(path) as lines:
            for line in lines:
                record = json.loads(line)
                title, body = str(record.get("summary") or ""), str(record.get("reviewText") or "")
                if find_reason(title, body) is None:
                    titles.append(title)
                    bodies.append(body[:1024])
                if len(titles) == count:
                    return Pairs(titles, bodies, count)
    raise SystemExit(f"{pattern}: {len(titles)} pairs, {count} are needed")


def build_ours(
    encoder: Path, pairs: Pairs, config: ContrastiveConfig
) -> Callable[[np.ndarray], object]:
    device = open_device("cpu", config.precision)
    texts = Texts(pairs, load_tokenizer(str(encoder)), config)
    return Contrast(config, load_network(encoder), texts, device, steps=100).take_step


def build_theirs(
    encoder: Path, pairs: Pairs, config: ContrastiveConfig, bf16: bool
) -> Callable[[np.ndarray], object]:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    model = SentenceTransformer(str(encoder), device="cpu")
    loss = MultipleNegativesRankingLoss(model, scale=1 / config.temperature)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate)

    def take_step(chosen: np.ndarray) -> None:
        features = []
        for texts, longest in (
            (pairs.titles, config.title_tokens),
            (pairs.bodies, config.body_tokens),
        ):
            model.max_seq_length = longest
            features.append(dict(model.tokenize([texts[i] for i in chosen])))
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            value = loss(features, torch.zeros(0))
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()
        optimizer.zero_grad()

    return take_step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", required=True, help="files of reviews, JSON lines")
    parser.add_argument("--encoder", required=True, type=Path, help="sentence-transformers folder")
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    config = ContrastiveConfig()
    pairs = read_pairs(arguments.input, config.batch * (arguments.steps + 1))
    has_bf16 = open_device("cpu", "auto").bf16
    ways = {
        "here": build_ours(arguments.encoder, pairs, config),
        "here, fp32": build_ours(arguments.encoder, pairs, config.replace(precision="fp32")),
        "sentence-transformers, fp32": build_theirs(arguments.encoder, pairs, config, bf16=False),
    }
    if has_bf16:
        ways["sentence-transformers, bf16"] = build_theirs(
            arguments.encoder, pairs, config, bf16=True
        )
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for batch in np.split(np.arange(len(pairs)), arguments.steps + 1):
        for name, take_step in ways.items():
            began = time.process_time()
            take_step(batch)
            seconds[name].append(time.process_time() - began)
    own = statistics.median(seconds["here"][1:])
    for name, taken in seconds.items():
        median = statistics.median(taken[1:])
        for_all = median * 10_000 / config.batch
        print(f"{name:<30}{median:7.3f} s a step {median / own:6.2f} × {for_all:7.0f} s")


if __name__ == "__main__":
    main()
