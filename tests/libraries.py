"""The libraries and servers that load a model folder, each as a function from texts to
probabilities [texts, labels].
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from amazon_electra.beam_jobs.model_folder.probabilities import apply_temperature
from amazon_electra.beam_jobs.scoring.classifier import load_classifier
from amazon_electra.model.tracking.served_model import write_served_model

Answer = Callable[[list[str]], np.ndarray]
INT8 = "score, int8"
BATCH = 32


def list_libraries(folder: Path, work: Path) -> Iterator[tuple[str, Answer]]:
    """Yield the name of each way to load a folder, and what answers; MLflow's copy is in `work`."""
    classifier = load_classifier(str(folder), "fp32")
    labels, kind = classifier.labels, classifier.details.kind
    yield "score", classifier.score
    if [*folder.rglob("model_quantized.onnx")]:
        yield INT8, load_classifier(str(folder), "int8").score
    yield "MLflow (pyfunc)", load_served(folder, work, labels)
    if kind == "transformers":
        yield "transformers' pipeline", load_pipeline(folder, labels)
        if json.loads((folder / "config.json").read_text())["model_type"] == "bert":
            yield "sentence-transformers and the head", load_states_and_head(folder)
    if kind in ("transformers", "onnx"):
        yield "ONNX Runtime", load_graph(folder)


def load_served(folder: Path, work: Path, labels: Sequence[str]) -> Answer:
    """The model of MLflow's server, which imports nothing of the project but its own copy."""
    import mlflow.pyfunc
    import pandas as pd

    served = work / f"{folder.name}-served"
    if not served.exists():
        write_served_model(folder, served)
    for name in [name for name in sys.modules if name.split(".")[0] in ("model_folder", "serving")]:
        del sys.modules[name]  # of another served model of this process
    model = mlflow.pyfunc.load_model(str(served))

    def answer(texts: list[str]) -> np.ndarray:
        rows = model.predict(pd.DataFrame({"text": texts}))["probabilities"]
        return np.array([[row[label] for label in labels] for row in rows])

    return answer


def load_pipeline(folder: Path, labels: Sequence[str]) -> Answer:
    from transformers import pipeline

    classify = pipeline("text-classification", model=str(folder), top_k=None, device="cpu")

    def answer(texts: list[str]) -> np.ndarray:
        found = classify(texts, truncation=True, batch_size=len(texts))
        rows = [{one["label"]: one["score"] for one in row} for row in found]
        return np.array([[row[label] for label in labels] for row in rows])

    return answer


def load_states_and_head(folder: Path) -> Answer:
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModelForSequenceClassification

    encoder = SentenceTransformer(str(folder), device="cpu")
    head = AutoModelForSequenceClassification.from_pretrained(folder).eval()

    def answer(texts: list[str]) -> np.ndarray:
        states = torch.from_numpy(encoder.encode(texts))
        with torch.no_grad():
            logits = head.classifier(head.bert.pooler(states[:, None]))
        return logits.double().softmax(1).numpy()

    return answer


def load_graph(folder: Path) -> Answer:
    """The lines of the card: ONNX Runtime and the tokenizer as they are."""
    import onnxruntime
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding()
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    names = [one.name for one in session.get_inputs()]

    def answer(texts: list[str]) -> np.ndarray:
        encoded = tokenizer.encode_batch(texts)
        inputs = {
            "input_ids": [one.ids for one in encoded],
            "attention_mask": [one.attention_mask for one in encoded],
            "token_type_ids": [one.type_ids for one in encoded],
        }
        given = {name: np.array(inputs[name], np.int64) for name in names}
        return apply_temperature(session.run(["logits"], given)[0], 1.0)

    return answer


def ask(answer: Answer, texts: Sequence[str], size: int) -> np.ndarray:
    """Return the probabilities [texts, labels] by an answer for each `size` texts."""
    parts = [answer([*texts[i : i + size]]) for i in range(0, len(texts), size)]
    return np.concatenate(parts)
