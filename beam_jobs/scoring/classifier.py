"""The exported classifier in a worker: texts of a prepared unit → probabilities of the classes.

The one module of beam_jobs that imports torch.
"""

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam.ml.inference.base import ModelHandler

from beam_jobs.job import storage
from beam_jobs.job.command import keep_freed_memory
from beam_jobs.job.errors import UserError
from beam_jobs.job.files import hash_bytes

BATCH_TOKENS = 2_048
"""Of a batch, padding included: small enough for the caches of a core, and texts of one length are
together (against 8,192 it gained 7% in bf16 and 19% in fp32).
"""

LARGEST_FP32_ERROR = 1e-5
"""Of a product of 256 × 256 matrices: fp32 has 3e-7, bf16 3e-3."""


@dataclass
class Classifier:
    """What a worker keeps: one copy for all its threads."""

    program: Any
    tokenizer: Any
    labels: list[str]


class UnitScorer(ModelHandler[dict[str, Any], dict[str, Any], Classifier]):
    """Scores prepared units; an element is the counts of one, its texts lie in a file."""

    def __init__(self, folder: str, texts: str, sha256: str = ""):
        super().__init__(max_batch_size=1)
        self.folder, self.texts, self.sha256 = folder, texts, sha256

    def load_model(self) -> Classifier:
        import torch
        from tokenizers import Tokenizer

        torch.set_num_threads(1)
        take_fastest_products()
        keep_freed_memory()
        settings = json.loads(storage.read_bytes(storage.join_path(self.folder, "scorer.json")))
        exported = storage.read_bytes(storage.join_path(self.folder, "scorer.pt2"))
        check_digest(self.folder, hash_bytes(exported), self.sha256 or settings.get("sha256"))
        try:
            tokenizer = Tokenizer.from_str(
                storage.read_bytes(storage.join_path(self.folder, "tokenizer.json")).decode()
            )
            program = torch.export.load(io.BytesIO(exported))
        except Exception as error:  # both raise whatever they come upon
            why = f"cannot be loaded ({error}); make it again by `python -m model.scorer`"
            raise UserError(f"--scorer {self.folder}: {' '.join(why.split())}") from error
        tokenizer.no_padding()
        tokenizer.enable_truncation(settings["max_length"])
        return Classifier(pack_int8_weights(program.module()), tokenizer, settings["labels"])

    def run_inference(
        self,
        batch: Sequence[dict[str, Any]],
        model: Classifier,
        inference_args: dict[str, Any] | None = None,
    ) -> Iterator[dict[str, Any]]:
        for counts in batch:
            yield {
                "counts": counts,
                "labels": model.labels,
                "probabilities": self._score_unit(counts, model),
            }

    def _score_unit(self, counts: dict[str, Any], model: Classifier) -> np.ndarray:
        """Return probabilities [reviews, classes] of a unit, in its order."""
        path = storage.join_path(self.texts, f"{counts['unit']}.arrow")
        with storage.open_bytes(path) as stream:
            texts = pa.ipc.open_file(stream).read_all()["text"].to_pylist()
        return score_texts(texts, model)

    def get_metrics_namespace(self) -> str:
        return "amazon_electra_scoring"


def take_fastest_products() -> None:
    """Let oneDNN make fp32 products where it makes them in fp32: on AMD's CPUs MKL takes twice as
    long, on those with AMX oneDNN would round to bf16.
    """
    import torch

    torch.set_float32_matmul_precision("medium")
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(256, 256, generator=generator) for _ in range(2))
    exact = left.double() @ right.double()
    if float((left @ right - exact).norm() / exact.norm()) > LARGEST_FP32_ERROR:
        torch.set_float32_matmul_precision("highest")


def score_texts(texts: list[str], model: Classifier) -> np.ndarray:
    """Return probabilities [texts, classes]."""
    ids = [encoding.ids for encoding in model.tokenizer.encode_batch_fast(texts)]
    probabilities = np.zeros((len(ids), len(model.labels)), dtype=np.float32)
    for rows in group_by_length(ids):
        probabilities[rows] = predict_probabilities([ids[row] for row in rows], model.program)
    return probabilities


def check_digest(folder: str, digest: str, expected: str | None) -> None:
    """Raise a UserError unless scorer.pt2 is the program that scorer.json was written with.

    Loading an exported program can run code of it, so nothing may be loaded that was changed.
    """
    if digest != expected:
        raise UserError(
            f"--scorer {folder}: scorer.pt2 is not the program that scorer.json or "
            "--scorer-sha256 names (its SHA-256 differs) and loading it could run anything; make "
            "the folder again by `python -m model.scorer`"
        )


def pack_int8_weights(program: Any) -> Any:
    """Give the int8 weights of a program the order in which oneDNN reads them, once and not in
    every product; a packed weight cannot be saved. Return the program.
    """
    import torch

    for name, weight in list(program.named_buffers()):
        if weight.dtype == torch.int8:
            module, _, leaf = name.rpartition(".")
            packed = torch.ops.onednn.qlinear_prepack(weight.t().contiguous(), None)
            setattr(program.get_submodule(module), leaf, packed)
    return program


def group_by_length(ids: list[list[int]]) -> Iterator[list[int]]:
    """Yield row numbers of texts of like length, BATCH_TOKENS at once when they are padded."""
    rows: list[int] = []
    for row in sorted(range(len(ids)), key=lambda row: -len(ids[row])):
        if rows and (len(rows) + 1) * len(ids[rows[0]]) > BATCH_TOKENS:
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows


def predict_probabilities(ids: list[list[int]], program: Any) -> np.ndarray:
    """Return [texts, classes]; the texts are padded to the longest with 0, [PAD]."""
    import torch

    length = max(2, *(len(row) for row in ids))
    padded = torch.zeros(len(ids), length, dtype=torch.long)
    mask = torch.zeros(len(ids), length, dtype=torch.long)
    for number, row in enumerate(ids):
        padded[number, : len(row)] = torch.tensor(row)
        mask[number, : len(row)] = 1
    with torch.inference_mode():
        return program(padded, mask).numpy()
