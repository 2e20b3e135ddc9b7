"""The arm of logistic regression on the states of an encoder whose weights stay."""

import sys
from pathlib import Path
from typing import Any, Self

import numpy as np

from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.model.arms import register
from amazon_electra.model.arms.arm import Arm, Examples, Exported, Resources
from amazon_electra.model.arms.out_of_fold import group_examples, list_labels
from amazon_electra.model.finetuning.examples import Example, Task
from amazon_electra.model.finetuning.head import Head, make_task, read_task_head
from amazon_electra.model.finetuning.request import Request


@register
class Frozen(Arm):
    """Logistic regression on the states of an encoder."""

    name = "frozen"
    title = "{} + logistic regression"
    cross_validates = True

    def __init__(
        self,
        layer: Any,
        encoder: Any,
        head: Any,
        source: str,
        resources: Resources,
        facts: dict[str, Any],
    ) -> None:
        self.layer, self.encoder, self.head, self.source = layer, encoder, head, source
        self.resources, self.facts = resources, facts

    @classmethod
    def fit(
        cls, train: Examples, dev: Examples, request: Request, resources: Resources, output: Path
    ) -> Self:
        from amazon_electra.model.arms.regression import summarize_attempts
        from amazon_electra.model.arms.states import MAX_LABELS, fit_layer

        arm, train = cls.open(train, request, resources, MAX_LABELS)
        labels, classes = list_labels(train), len(request.task.labels)
        states, said = arm.compute_states(train), arm.read_phrases(request.task)
        found = fit_layer(states, labels, classes, group_examples(train), said)
        arm.layer, fitted, factor = found
        arm.out_of_fold = fitted.describe(train)
        arm.facts |= summarize_attempts(fitted.tried) | {"phrase_factor": factor}
        arm.facts["parameters"] += fitted.model.coef_.size
        return arm

    @classmethod
    def open(
        cls, train: Examples, request: Request, resources: Resources, most_labels: int
    ) -> tuple[Self, Examples]:
        """Return the arm without its regression, and the training examples that it learns from: the
        first `most_labels`, as more states would not fit into memory.
        """
        from amazon_electra.model.arms.states import open_encoder
        from amazon_electra.model.device import open_device
        from amazon_electra.model.finetuning import network

        task, settings, source = request.task, request.settings, request.start.encoder
        device = open_device(resources.device, settings.precision)
        length, warning = network.choose_max_length(source, task, settings)
        warnings = [warning] if warning else []
        if len(train) > most_labels:
            warnings.append(
                f"the regression on states learns from {most_labels:,} of {len(train):,} "
                "labels: more states would not fit into memory"
            )
            train = train[:most_labels]
        for text in warnings:
            print(f"warning: {text}", file=sys.stderr)
        head = Head(task.name, task.shape, task.labels, length, settings.stride, kind=cls.name)
        encoder = open_encoder(source, task, head, device)
        facts = {
            "n_train": len(train),
            "parameters": sum(p.numel() for p in encoder.parameters()),
            "device": device.kind,
            **({"warnings": warnings} if warnings else {}),
        }
        return cls(None, encoder, head, source, resources, facts), train

    def compute_states(self, examples: Examples) -> np.ndarray:
        """Return the states of examples, float32 [examples, layers · width]."""
        from amazon_electra.model.arms import states
        from amazon_electra.model.device import open_device
        from amazon_electra.model.finetuning import network

        featurizer = self.head.make_featurizer(network.load_tokenizer(self.source))
        features = featurizer(examples)
        device = open_device(self.resources.device, self.resources.precision)
        self.encoder.to(device.torch)
        return states.compute_states(
            self.encoder, features, self.head.max_length, device, self.resources.cache
        )

    def read_phrases(self, task: Task) -> np.ndarray:
        """Return the directions of the classes by their phrases, float32 [classes, width]; none of
        a task without phrases.
        """
        from amazon_electra.model.arms.phrases import average_phrases, take_directions

        width = self.encoder.config.hidden_size
        texts = [text for phrases in task.phrases for text in phrases]
        if not texts:
            return np.empty((0, width), np.float32)
        states = self.compute_states([Example(str(i), text) for i, text in enumerate(texts)])
        return average_phrases(take_directions(states, width), [*map(len, task.phrases)])

    def predict_logits(self, examples: Examples) -> np.ndarray:
        logits: np.ndarray = self.layer.compute_logits(self.compute_states(examples))
        return logits

    def save(self, folder: Path) -> None:
        from amazon_electra.model.finetuning.network import save_finetuned

        self.layer.save(folder)
        save_finetuned(self.encoder.cpu(), self.head, self.source, folder)

    @classmethod
    def load(cls, folder: Path, resources: Resources) -> Self:
        from amazon_electra.model.arms.states import StateLayer, open_encoder
        from amazon_electra.model.device import open_device

        head = read_task_head(folder)
        device = open_device(resources.device, resources.precision)
        encoder = open_encoder(str(folder), make_task(head), head, device)
        return cls(StateLayer.load(folder), encoder, head, str(folder), resources, {})

    def export(self, folder: Path, temperature: float, task: Task) -> Exported:
        """Write one graph of encoder, pooling, standardization and regression, whose logits are
        calibrated, and the encoder as sentence-transformers loads it, in a folder of its own:
        beside the graph transformers would take it for a classifier and draw a head for it.
        """
        from amazon_electra.model.arms import onnx
        from amazon_electra.model.arms.states import LAYERS, open_encoder
        from amazon_electra.model.device import open_device
        from amazon_electra.model.encoders.config import POOLING
        from amazon_electra.model.encoders.export import write_pooling

        head, source = self.head, Path(self.source)
        device = open_device("cpu", "fp32")
        encoder: Any = open_encoder(self.source, make_task(head), head, device)
        names = onnx.choose_inputs(encoder.config)
        layers = min(LAYERS, encoder.config.num_hidden_layers)
        own = (self.layer.weights, self.layer.offsets)
        scaled = [(one / temperature).astype(np.float32) for one in own]
        model = onnx.StatesClassifier(encoder, layers, *scaled).eval()
        onnx.export_onnx(model, encoder.config, names, folder / onnx.ONNX, self.resources.cache)
        onnx.write_tokenizer(source, folder, head, names)
        inner = folder / onnx.ENCODER
        inner.mkdir(exist_ok=True)
        encoder.save_pretrained(inner)
        onnx.write_shape(encoder.config, inner)
        onnx.write_tokenizer(source, inner, head, names)
        pooling = getattr(encoder.config, POOLING, "mean")
        write_pooling(folder, encoder.config.hidden_size, head.max_length, pooling, onnx.ENCODER)
        onnx.quantize(folder)
        config = {"max_length": head.max_length, "pad_token_id": encoder.config.pad_token_id}
        return Exported("onnx", 1.0, config)
