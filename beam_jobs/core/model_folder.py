"""What the writer of a model folder (model.export) and its readers, beam_jobs.scoring and MLflow's
server, agree on: files, probabilities, and which values are reviews.

MLflow copies this file beside the folder, so it imports nothing of this package; its errors are
ValueErrors without the folder's name.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

ONNX, QUANTIZED, PIPELINE = "model.onnx", "model_quantized.onnx", "model.skops"
"""Names of the files with the weights: of a network in fp32 and in int8, and of TF-IDF."""
PART_NAME = re.compile("[a-z0-9][a-z0-9-]{0,40}")
"""Of the folder of one of several models whose logits are added."""
MIN_PROBABILITY = 1e-30
"""Of a class: one that a pipeline never saw has a logarithm too."""
MIN_REST = 1e-7
"""Least difference of a probability from 1 that float32 has, about."""
TEMPERATURES = 0.01, 100.0
"""Bounds of a temperature; those of model.export lie between 0.2 and 10."""
MAX_CHARACTERS = 200_000
"""Of a text that are classified; the rest of a longer one is ignored."""
MAX_LABELS = 1_000
MULTILABEL = "multi_label_classification"
"""transformers' `problem_type` of a model whose texts may have several labels."""
BATCH_TOKENS = 2_048
"""Of a batch, padding included: small enough for the caches of a core."""
MAX_TEXTS = 4_096
"""Of a batch."""
NO_FOLDER = "/dev/null/none"
"""Where ONNX Runtime looks for weights outside model.onnx: they would stand in no digest."""
PROBE = "A lamp that broke on the first day."
"""The text on which a model is tried when it is loaded."""


def shorten_task(task: str) -> str:
    """Return a task's name in the registry and in columns of scores: of `label:fault` that of the
    column, unless a task of stars has it.
    """
    column = task.removeprefix("label:")
    return re.sub(r"[/:\s]+", "-", task if column in ("polarity", "stars") else column)


Compute = Callable[[list[str]], np.ndarray]
"""Texts → [texts, classes]."""


class WrongScores(ValueError):
    """A model gave something else than a finite score for each text and class."""


def read_review(value: Any) -> tuple[str, str]:
    """Return a review's text, or an empty one and the reason why a value is no review.

    Null and NaN, which is how pandas writes null, are no text. Lone surrogates are left out.
    """
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return "", "no text"
    if not isinstance(value, str):
        return "", "text is not a string"
    text = value[:MAX_CHARACTERS].encode(errors="ignore").decode()
    return (text, "") if text.strip() else ("", "empty text")


def take_probabilities(probabilities: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return of each row of probabilities [n, classes] that of its class: of an answer, how
    confident it is.
    """
    return np.asarray(probabilities[np.arange(len(classes)), classes])


def check_labels(labels: list[str]) -> None:
    """Raise ValueError unless there are 2 to MAX_LABELS labels that differ, none of them empty."""
    if not 2 <= len(labels) <= MAX_LABELS or not all(labels):
        raise ValueError(f"a classifier has 2 to {MAX_LABELS:,} labels, none of them empty")
    if equal := sorted({label for label in labels if labels.count(label) > 1}):
        raise ValueError(f"two labels are equal: {', '.join(equal)}")


def check_temperature(temperature: float) -> None:
    """Raise ValueError for a temperature that is out of bounds."""
    low, high = TEMPERATURES
    if not low <= temperature <= high:
        raise ValueError(f"temperature {temperature:g} is not between {low:g} and {high:g}")


def check_scores(scores: np.ndarray, texts: int, classes: int) -> None:
    """Raise WrongScores unless logits or probabilities are finite, and [texts, classes]."""
    if scores.shape != (texts, classes):
        raise WrongScores(f"scores {list(scores.shape)} of {texts} texts and {classes} classes")
    if not np.isfinite(scores).all():
        raise WrongScores("a score is NaN or infinite")


def load_pipeline(content: bytes, labels: list[str]) -> tuple[Any, Compute]:
    """Return the pipeline of model.skops, and what computes the probabilities of texts by it.

    skops loads the types of scikit-learn, SciPy and NumPy that it knows to be harmless; `trusted`
    names no others, so it raises for them.
    """
    from skops import io

    pipeline = io.loads(content, trusted=[])
    names = [str(name) for name in pipeline.classes_]
    check_labels(names)
    places = [labels.index(name) for name in names]

    def compute(texts: list[str]) -> np.ndarray:
        probabilities = np.zeros((len(texts), len(labels)))
        found = pipeline.predict_proba(texts)
        check_scores(found, len(texts), len(names))
        probabilities[:, places] = found
        return probabilities

    return pipeline, compute


def load_tokenizer(content: bytes, max_length: int) -> Any:
    """Return the tokenizer of a tokenizer.json that cuts texts to a length, in tokens."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(content.decode())
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length)
    return tokenizer


def count_cut_texts(tokenizer: Any, texts: Sequence[Any]) -> int:
    """Return how many texts, or pairs of texts, a tokenizer cuts to the length it is set to."""
    return sum(bool(one.overflowing) for one in tokenizer.encode_batch_fast(list(texts)))


def load_graph(
    weights: bytes, tokenizer: Any, classes: int, pad_token_id: int | None, threads: int = 0
) -> Compute:
    """Return what computes the logits of texts by an ONNX graph; `threads` 0: one for each core."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", NO_FOLDER
    )
    session = onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])
    inputs = [one.name for one in session.get_inputs()]

    def compute(texts: list[str]) -> np.ndarray:
        ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts)]
        logits = np.zeros((len(ids), classes), np.float32)
        for rows in group_by_length(ids, BATCH_TOKENS):
            shape = len(rows), max(1, len(ids[rows[0]]))
            given = {
                "input_ids": np.full(shape, pad_token_id or 0, np.int64),
                "attention_mask": np.zeros(shape, np.int64),
                "token_type_ids": np.zeros(shape, np.int64),
            }
            for number, row in enumerate(rows):
                given["input_ids"][number, : len(ids[row])] = ids[row]
                given["attention_mask"][number, : len(ids[row])] = 1
            [found] = session.run(["logits"], {name: given[name] for name in inputs})
            check_scores(found, len(rows), classes)
            logits[rows] = found
        return logits

    return compute


def group_by_length(ids: list[list[int]], batch_tokens: int) -> Iterator[list[int]]:
    """Yield row numbers of texts of like length, the longest first, `batch_tokens` at once when
    they are padded.
    """
    rows: list[int] = []
    for row in sorted(range(len(ids)), key=lambda row: -len(ids[row])):
        if rows and len(rows) >= min(MAX_TEXTS, batch_tokens // max(1, len(ids[rows[0]]))):
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows


def check_parts(parts: list[dict[str, Any]]) -> None:
    """Raise ValueError unless each part of a folder of models is a folder in it, with a weight."""
    if not parts:
        raise ValueError("amazon_electra.parts names no folder")
    for part in parts:
        name, weight = part.get("folder"), part.get("weight")
        if not isinstance(name, str) or not PART_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a part's folder")
        if not isinstance(weight, int | float) or not np.isfinite(weight):
            raise ValueError(f"the weight of the part {name} is {weight!r}")


def sum_parts(
    probabilities: list[np.ndarray], weights: list[float], is_multilabel: bool = False
) -> np.ndarray:
    """Return logits, float64 [examples, classes]: those of each part, weighted and added."""
    pairs = zip(probabilities, weights, strict=True)
    return np.asarray(sum(weight * take_logarithms(one, is_multilabel) for one, weight in pairs))


def take_logarithms(probabilities: np.ndarray, is_multilabel: bool = False) -> np.ndarray:
    """Return logits, float64, whose softmax, or sigmoid, are the probabilities."""
    given = probabilities.astype(np.float64)
    logarithms = np.log(np.maximum(given, MIN_PROBABILITY))
    return logarithms - np.log(np.maximum(1 - given, MIN_REST)) if is_multilabel else logarithms


def apply_temperature(
    logits: np.ndarray, temperature: float, is_multilabel: bool = False
) -> np.ndarray:
    """Return softmax(logits / temperature), float64 [examples, classes]; the sigmoid of each where
    a text may have several of the classes.
    """
    scaled = logits.astype(np.float64) / temperature
    if is_multilabel:
        return np.asarray(np.exp(-np.logaddexp(0, -scaled)))
    powers = np.exp(scaled - scaled.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))
