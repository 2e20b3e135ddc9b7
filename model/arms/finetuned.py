"""The arm of a network that is fine-tuned whole, for every shape of task."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from amazon_electra.beam_jobs.core.files import hash_bytes
from amazon_electra.model.arms import register
from amazon_electra.model.arms.arm import Arm, Examples, Exported, Resources
from amazon_electra.model.finetuning.examples import Task
from amazon_electra.model.finetuning.request import Request

if TYPE_CHECKING:
    from amazon_electra.model.evaluation.predictions import Predictions


@register
class Finetuned(Arm):
    """The whole network is trained further."""

    name = "finetuned"
    title = "{}, fine-tuned"
    shapes = ("classification", "multilabel", "regression", "tokens", "span", "choice")
    settings = None

    def __init__(
        self, model: Any, head: Any, tokenizer: str, resources: Resources, facts: dict[str, Any]
    ) -> None:
        self.model, self.head, self.tokenizer = model, head, tokenizer
        self.resources, self.facts = resources, facts

    @classmethod
    def fit(
        cls, train: Examples, dev: Examples, request: Request, resources: Resources, output: Path
    ) -> Self:
        from amazon_electra.model.finetuning.fit import find_tokenizer, train_network  # loads torch

        model, head, facts = train_network(request, train, dev, resources.device, output)
        return cls(model, head, find_tokenizer(request.start), resources, facts)

    def predict_logits(self, examples: Examples) -> np.ndarray:
        return np.stack(self._predict(examples)[0])

    def predict_examples(self, examples: Examples, task: Task) -> "Predictions":
        from amazon_electra.model.evaluation.predict import make_predictions

        logits, features = self._predict(examples)
        return make_predictions(logits, features, examples, task, self.head.threshold)

    def _predict(self, examples: Examples) -> tuple[list[np.ndarray], Any]:
        """Return logits of each example, or window, in the task's shape, cached, and features."""
        from amazon_electra.model.arms.cache import keep_arrays, read_arrays
        from amazon_electra.model.device import open_device
        from amazon_electra.model.finetuning import network

        featurizer = self.head.make_featurizer(network.load_tokenizer(self.tokenizer))
        features = featurizer(examples)
        device = open_device(self.resources.device, self.resources.precision)
        network.prepare_network(self.model, self.head, device)
        cache, kept = self.resources.cache, None
        if cache and self.head.shape in ("classification", "multilabel"):  # a row for each
            texts = hash_bytes(b"|".join(np.asarray(one.ids[0]).tobytes() for one in features))
            way = [self.head.max_length, device.kind, device.bf16, texts]
            kept = cache / f"logits-{network.hash_network(self.model, way)}.safetensors"
            if known := read_arrays(kept):
                return list(known["logits"]), features
        logits = network.predict_logits(self.model, features, self.head.shape, device)
        if kept:
            keep_arrays({"logits": np.stack(logits)}, kept)
        return logits, features

    def save(self, folder: Path) -> None:
        from amazon_electra.model.finetuning.network import save_finetuned

        save_finetuned(self.model, self.head, self.tokenizer, folder)

    @classmethod
    def load(cls, folder: Path, resources: Resources) -> Self:
        from amazon_electra.model.finetuning.network import load_finetuned

        model, head, _ = load_finetuned(folder)
        return cls(model, head, str(folder), resources, {})

    def export(self, folder: Path, temperature: float, task: Task) -> Exported:
        from amazon_electra.model.arms.onnx import write_network

        return write_network(Path(self.tokenizer), temperature, folder, self.resources.cache)
