"""What tokenizing costs of a study's cell: a fine-tuning with its evaluation on test.

    python tests/bench/finetuning_tokens.py --encoder MODEL --task polarity --data CORPUS [--json]

All options but `--json` are those of model.finetune, whose process this is: its CPU seconds are the
whole cell's, imports included. Train, dev and test are tokenized once for all learning rates of a
cell, and with `--cache DIR` once for all cells: the second run with the same folder shows what a
cell with another seed saves.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from model import finetune
from model.finetuning.features.examples import Example
from model.finetuning.features.featurizer import Feature, Featurizer

stream_features = Featurizer.stream_features
spent = {"texts": 0, "seconds": 0.0}


def stream_timed(featurizer: Featurizer, examples: Sequence[Example]) -> Iterator[Feature]:
    """Yield the features, and add to `spent` what making them takes."""
    features = stream_features(featurizer, examples)
    spent["texts"] += len(examples)
    while True:
        started = time.process_time()
        feature = next(features, None)
        spent["seconds"] += time.process_time() - started
        if feature is None:
            return
        yield feature


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--json"]
    if {"-h", "--help"} & set(words):  # and those of model.finetune follow
        print(__doc__, flush=True)
    Featurizer.stream_features = stream_timed  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory(prefix="finetuning-tokens-") as folder:
        finetune.run([*words, "--output", f"{folder}/model", "--evaluation", f"{folder}/test"])
    whole = time.process_time()
    found = {
        "texts": spent["texts"],
        "tokenizing_cpu_seconds": round(spent["seconds"], 2),
        "cell_cpu_seconds": round(whole, 2),
        "share": round(spent["seconds"] / whole, 4),
    }
    as_text = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in found.items())
    print(json.dumps(found) if "--json" in sys.argv else as_text)


if __name__ == "__main__":
    main()
