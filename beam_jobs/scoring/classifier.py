"""The exported classifier in a worker: texts of a prepared unit → probabilities of the classes.

The one module of beam_jobs that imports torch.
"""

import io
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam.ml.inference.base import ModelHandler

from beam_jobs.core import storage
from beam_jobs.core.command import keep_freed_memory
from beam_jobs.core.errors import UserError
from beam_jobs.core.files import hash_bytes
from beam_jobs.reading.work_units import PreparedUnit
from beam_jobs.scoring.score_files import ScoredUnit

MOST_TEXTS = 4096
"""Of a batch: what the program was exported for."""
LARGEST_FP32_ERROR = 1e-5
"""Of a product of 256 × 256 matrices: fp32 has 3e-7, bf16 3e-3."""


@dataclass(frozen=True)
class Processor:
    """What a worker computes on, and how much of it at once."""

    device: str
    batch_tokens: int
    """Of a batch, padding included."""


CPU = Processor("cpu", 2_048)
"""2,048 tokens are small enough for the caches of a core, and texts of one length are together
(against 8,192 it gained 7% in bf16 and 19% in fp32).
"""
GPU = Processor("cuda", 65_536)
"""An estimate: no GPU was there to measure it."""


@dataclass
class Classifier:
    """What a worker keeps: one copy for all its threads."""

    program: Any
    tokenizer: Any
    labels: list[str]
    processor: Processor = CPU
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Of a GPU: its memory is for one batch."""


class UnitScorer(ModelHandler[PreparedUnit, ScoredUnit, Classifier]):
    """Scores prepared units, whose texts lie in files."""

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
        processor = find_processor()
        placed = place_program(program, processor)
        return Classifier(placed, tokenizer, settings["labels"], processor)

    def run_inference(
        self,
        batch: Sequence[PreparedUnit],
        model: Classifier,
        inference_args: dict[str, Any] | None = None,
    ) -> Iterator[ScoredUnit]:
        for unit in batch:
            path = storage.join_path(self.texts, f"{unit.unit}.arrow")
            with storage.open_bytes(path) as stream:
                texts = pa.ipc.open_file(stream).read_all()["text"].to_pylist()
            yield ScoredUnit(unit.unit, model.labels, score_texts(texts, model))

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
    for rows in group_by_length(ids, model.processor.batch_tokens):
        probabilities[rows] = predict_probabilities([ids[row] for row in rows], model)
    return probabilities


def find_processor() -> Processor:
    """Return the GPU of this worker if it has one, else its CPU."""
    import torch

    return GPU if torch.cuda.is_available() else CPU


def place_program(exported: Any, processor: Processor) -> Any:
    """Return an exported program on the processor."""
    if processor.device != "cpu":
        from torch.export.passes import move_to_device_pass

        exported = move_to_device_pass(exported, processor.device)
    return exported.module()


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


def group_by_length(ids: list[list[int]], batch_tokens: int) -> Iterator[list[int]]:
    """Yield row numbers of texts of like length, `batch_tokens` at once when they are padded."""
    rows: list[int] = []
    for row in sorted(range(len(ids)), key=lambda row: -len(ids[row])):
        most = min(MOST_TEXTS, batch_tokens // len(ids[rows[0]])) if rows else MOST_TEXTS
        if rows and len(rows) >= most:
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows


def predict_probabilities(ids: list[list[int]], model: Classifier) -> np.ndarray:
    """Return [texts, classes]; the texts are padded to the longest with 0, [PAD]."""
    import torch

    is_gpu = model.processor.device == "cuda"
    shape = len(ids), max(2, *(len(row) for row in ids))
    padded, mask = (torch.zeros(shape, dtype=torch.long, pin_memory=is_gpu) for _ in range(2))
    for number, row in enumerate(ids):
        padded[number, : len(row)] = torch.tensor(row)
        mask[number, : len(row)] = 1
    with model.lock if is_gpu else nullcontext(), torch.inference_mode():
        inputs = (part.to(model.processor.device, non_blocking=True) for part in (padded, mask))
        probabilities: np.ndarray = model.program(*inputs).cpu().numpy()
    return probabilities
