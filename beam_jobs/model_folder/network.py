"""A network of the folder: its tokenizer, and its graph by ONNX Runtime."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Text = str | tuple[str, str]  # A text, or a pair of texts
Compute = Callable[[Sequence[Text]], np.ndarray]  # texts → logits [texts, classes]
BATCH_TOKENS = 2_048  # padding included: small enough for the caches of a core
MAX_TEXTS = 4_096
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
NO_FOLDER = "/dev/null/none"  # of weights outside model.onnx, which stand in no digest


def load_tokenizer(content: bytes, max_length: int) -> Any:
    """Return the tokenizer of a tokenizer.json that cuts texts to a length, in tokens."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(content.decode())
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length)
    return tokenizer


def load_graph(
    weights: bytes, tokenizer: Any, pad_token_id: int | None, threads: int = 0
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

    def compute(texts: Sequence[Text]) -> np.ndarray:
        encoded = tokenizer.encode_batch_fast(list(texts))
        logits, order = list[np.ndarray](), list[int]()
        for rows in group_by_length([len(one.ids) for one in encoded], BATCH_TOKENS):
            shape = len(rows), max(1, len(encoded[rows[0]].ids))
            given = {name: np.zeros(shape, np.int64) for name in INPUTS}
            given["input_ids"] += pad_token_id or 0
            for number, row in enumerate(rows):
                own = encoded[row].ids, encoded[row].attention_mask, encoded[row].type_ids
                for name, values in zip(INPUTS, own, strict=True):
                    given[name][number, : len(values)] = values
            logits += session.run(["logits"], {name: given[name] for name in inputs})
            order += rows
        return np.concatenate(logits)[np.argsort(order)]

    return compute


def group_by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield row numbers of texts of like length, the longest first, `batch_tokens` when padded."""
    rows: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if rows and len(rows) >= min(MAX_TEXTS, batch_tokens // max(1, lengths[rows[0]])):
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows
