r"""Whether others load an exported model and give the labels of our own evaluation:

    python -m model.export --cells best=CELL --evaluations CELL_TEST --task polarity --data CORPUS \
        --output MODEL
    python tests/bench/loaders.py --model MODEL --evaluation CELL_TEST --data CORPUS

Labels a thousand test reviews of polarity by the pipeline of transformers, by sentence-transformers
(its encoder and pooling, with the folder's own head behind it), by ONNX Runtime in fp32 and int8 as
`score` does, and by `mlflow models serve`. Prints how many labels are not those of the evaluation.
"""

import argparse
import json
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from beam_jobs.scoring.classifier import load_classifier
from model.evaluation.predictions import read_predictions
from model.finetuning.examples import Sampling, load_examples
from model.finetuning.tasks import find_task
from model.tracking.served_model import write_served_model

TASK = find_task("polarity")


def ask_pipeline(folder: Path, texts: list[str]) -> list[str]:
    from transformers import pipeline

    classify = pipeline("text-classification", model=str(folder))
    return [answer["label"] for answer in classify(texts, truncation=True, batch_size=16)]


def ask_sentence_transformers(folder: Path, texts: list[str]) -> list[str]:
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModelForSequenceClassification

    states = SentenceTransformer(str(folder), device="cpu").encode(texts, convert_to_tensor=True)
    network = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    head = network.classifier if hasattr(network, "classifier") else network.score
    with torch.no_grad():
        if pooler := getattr(network.base_model, "pooler", None):
            states = torch.tanh(pooler.dense(states))
        logits = head(states)
    return [TASK.labels[place] for place in logits.argmax(1)]


def ask_score(folder: Path, texts: list[str], precision: str) -> list[str]:
    classifier = load_classifier(str(folder), precision)
    return [classifier.labels[place] for place in classifier.score(texts).argmax(1)]


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve the folder by `mlflow models serve`; yield the address."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as name:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
        free.close()
        write_served_model(folder, Path(name, "served"))
        words = ["mlflow", "models", "serve", "--env-manager", "local", "--workers", "1"]
        words += ["-m", f"{name}/served", "-h", "127.0.0.1", "-p", port]
        with subprocess.Popen(words, stderr=subprocess.DEVNULL) as server:
            try:
                wait_for(f"http://127.0.0.1:{port}/ping")
                yield f"http://127.0.0.1:{port}/invocations"
            finally:
                server.terminate()


def wait_for(address: str) -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(1)
    raise SystemExit(f"{address} does not answer")


def ask_served(folder: Path, texts: list[str]) -> list[str]:
    labels: list[str] = []
    with serve(folder) as address:
        for start in range(0, len(texts), 100):
            body = json.dumps({"inputs": texts[start : start + 100]}).encode()
            kind = {"Content-Type": "application/json"}
            with urllib.request.urlopen(urllib.request.Request(address, body, kind)) as answer:
                labels += [row["label"] for row in json.load(answer)["predictions"]]
    return labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--evaluation", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="the corpus")
    parser.add_argument("--reviews", type=int, default=1000)
    args = parser.parse_args()
    told = read_predictions(args.evaluation / "predictions.parquet")
    expected = dict(zip(told.ids, told.predictions, strict=True))
    examples = load_examples(TASK, args.data, "test", Sampling())
    examples = [example for example in examples if example.id in expected][: args.reviews]
    texts = [example.text for example in examples]
    labels = np.array([TASK.labels[expected[example.id]] for example in examples])

    def compare(name: str, found: Sequence[str]) -> None:
        print(f"{name:<24}{(labels != np.array(found)).sum():>4} of {len(texts):,} labels differ")

    compare("transformers pipeline", ask_pipeline(args.model, texts))
    compare("sentence-transformers", ask_sentence_transformers(args.model, texts))
    compare("ONNX Runtime, fp32", ask_score(args.model, texts, "fp32"))
    if (args.model / "model_quantized.onnx").exists():
        compare("ONNX Runtime, int8", ask_score(args.model, texts, "int8"))
    compare("mlflow models serve", ask_served(args.model, texts))


if __name__ == "__main__":
    main()
