"""Model folders for the tests: a toy network of ONNX, and TF-IDF."""

import json
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from tokenizers import Tokenizer, models, pre_tokenizers

LABELS = ["negative", "neutral", "positive"]
WORDS = ["[PAD]", "[UNK]", "good", "bad", "fine", "very", "not"]
VECTORS = np.random.default_rng(0).normal(size=(len(WORDS), len(LABELS))).astype(np.float32)
TEMPERATURE = 1.5


def write_config(folder: Path, kind: str, labels: list[str], **details: object) -> None:
    config = {
        "id2label": dict(enumerate(labels)),
        "temperature": TEMPERATURE,
        "amazon_electra": {"kind": kind, "task": "polarity", **details},
    }
    (folder / "config.json").write_text(json.dumps(config))


def write_network(
    folder: Path, max_length: int = 16, vectors: np.ndarray = VECTORS, **details: object
) -> Path:
    """A network whose logits are the mean of the vectors of a text's words."""
    folder.mkdir(parents=True, exist_ok=True)
    labels = LABELS[: max(2, vectors.shape[1])]
    write_config(folder, "transformers", labels, max_length=max_length, **details)
    tokenizer = Tokenizer(models.WordLevel(dict(zip(WORDS, range(9), strict=False)), "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    nodes = [
        helper.make_node("Gather", ["vectors", "input_ids"], ["found"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["wide"]),
        helper.make_node("Mul", ["found", "wide"], ["masked"]),
        helper.make_node("ReduceSum", ["masked", "middle"], ["sum"], keepdims=0),
        helper.make_node("ReduceSum", ["wide", "middle"], ["count"], keepdims=0),
        helper.make_node("Div", ["sum", "count"], ["logits"]),
    ]
    shape = ["batch", "tokens"]
    graph = helper.make_graph(
        nodes,
        "toy",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, shape)
            for name in ("input_ids", "attention_mask")
        ],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", vectors.shape[1]])],
        [
            numpy_helper.from_array(vectors, "vectors"),
            numpy_helper.from_array(np.array([-1]), "last"),
            numpy_helper.from_array(np.array([1]), "middle"),
        ],
    )
    opset = [helper.make_opsetid("", 18)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=10), folder / "model.onnx")
    return folder


def expect(text: str) -> np.ndarray:
    """The probabilities of a text, of its words one by one."""
    logits = np.mean([VECTORS[WORDS.index(w) if w in WORDS else 1] for w in text.split()], 0)
    powers = np.exp(logits / TEMPERATURE)
    return powers / powers.sum()


def write_tfidf(folder: Path) -> tuple[Path, object]:
    """TF-IDF of words and characters with logistic regression, and the pipeline itself."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = ["good phone", "bad phone", "very good", "not good", "fine", "a bad thing"] * 3
    labels = ["positive", "negative", "positive", "negative", "neutral", "negative"] * 3
    features = make_union(TfidfVectorizer(), TfidfVectorizer(analyzer="char_wb"))
    pipeline = make_pipeline(features, LogisticRegression()).fit(texts, labels)
    write_config(folder, "skops", LABELS)
    from skops import io

    io.dump(pipeline, folder / "model.skops")
    return folder, pipeline
