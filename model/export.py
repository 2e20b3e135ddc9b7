"""Write the model folder that others load: `python -m model.export --cells ARM=DIR… --data CORPUS
--task NAME --output DIR`.

The best arm by dev becomes a folder for AutoModelForSequenceClassification, pipeline(), ONNX
Runtime and text-embeddings-inference, or for skops where it is TF-IDF. `temperature` in config.json
divides the logits before the softmax; it was fitted on dev.
"""

import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from tokenizers import Tokenizer
from torch import Tensor, nn

from beam_jobs.core.command import main
from beam_jobs.core.errors import UserError
from beam_jobs.core.files import make_writable_folder, write_json
from beam_jobs.core.model_folder import (
    LEAST_PROBABILITY,
    ONNX,
    PIPELINE,
    QUANTIZED,
    apply_temperature,
    take_logarithms,
)
from beam_jobs.core.settings import read_options
from beam_jobs.core.terminal import print
from model.config import FinetuningSettings
from model.device import open_device
from model.encoders.origin import describe_start
from model.evaluation.metrics import METRICS, compute_metric, rank_arm, rank_dev_metrics
from model.evaluation.predict import make_predictions, predict_examples
from model.evaluation.predictions import Predictions, read_predictions
from model.evaluation.significance import compare_arms
from model.finetuning import network
from model.finetuning.examples import Example, Task, load_examples
from model.finetuning.request import choose_sampling
from model.finetuning.tasks import find_task
from model.options import ExportOptions
from model.report.document import Table, render_template
from model.report.sections import format_change, format_number

CHECKED_TEXTS = 1_000
"""Texts of dev on which ONNX is compared with torch."""
LARGEST_DIFFERENCE = 1e-4
"""Of a logit, between torch and ONNX in fp32."""
MOST_CHANGED = 0.01
"""Share of the labels that int8 may change."""
TEMPERATURES = (0.2, 10.0)
"""Between which the best one is looked for: a dev set without a mistake would take none at all."""
BATCH = 32
NAME = "amazon-electra"
METRIC_TYPES = {"macro_f1": "f1", "matthews": "matthews_correlation"}
"""Names on the Hugging Face hub where they differ from ours."""
POOLING = "1_Pooling"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


@dataclass(frozen=True)
class ExportCell:
    """A fine-tuned folder, or that of a baseline, and its evaluation on test."""

    arm: str
    folder: Path
    evaluation: Path | None = None

    @cached_property
    def result(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "result.json").read_text(encoding="utf-8")))

    @cached_property
    def described(self) -> dict[str, Any]:
        """Content of task.json."""
        return dict(json.loads((self.folder / "task.json").read_text(encoding="utf-8")))

    @cached_property
    def measured(self) -> dict[str, Any]:
        """Content of the evaluation's metrics.json; empty where there is none."""
        if self.evaluation is None:
            return {}
        return dict(json.loads((self.evaluation / "metrics.json").read_text(encoding="utf-8")))

    @property
    def kind(self) -> str:
        """Return transformers, tfidf or frozen."""
        kind = str(self.described.get("kind", "network"))
        return "transformers" if kind == "network" else kind

    @property
    def is_random(self) -> bool:
        """Whether its encoder began with random weights: an arm that others are measured by."""
        return self.result.get("encoder") == "random"

    @property
    def is_candidate(self) -> bool:
        """Whether it may become the model: transformers has no class for the head of a frozen
        encoder.
        """
        return self.kind != "frozen" and not self.is_random

    @property
    def seed(self) -> int:
        return int(self.result["seed"])

    @property
    def dev(self) -> dict[str, float]:
        """The metrics on dev, the main one first."""
        return dict(self.result["dev"])


def export(cells: Sequence[ExportCell], task: str, data: Path, output: Path) -> dict[str, Any]:
    """Write the model folder of the best arm by dev to `output`, results.json last; return its
    content but for the arms.

    `cells` are the fine-tuned folders of one task, and the evaluations of all of them or of none;
    those of one arm differ in the seed. `data` is the folder or file of the task.
    """
    check_cells(cells)
    found = find_task(task, data, tuple(cells[0].described["labels"]))
    if found.shape != "classification":
        raise UserError(f"task: {task} is {found.shape}; only classifiers are exported")
    return write_model(cells, found, data, output)


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Read the options and call `export`."""
    options = read_options(ExportOptions, argv, "python -m model.export", __doc__)
    cells = read_cells(options.cells, options.evaluations)
    return export(cells, options.task, options.data, options.output)


def write_model(
    cells: Sequence[ExportCell], task: Task, data: Path, output: Path
) -> dict[str, Any]:
    """Write the folder, results.json last; return its content but for the arms."""
    make_writable_folder("output", output)
    metric = task.metrics[0]
    best = choose_best([cell for cell in cells if cell.is_candidate])
    trained = json.loads((best.folder / "run.json").read_text(encoding="utf-8"))
    settings = FinetuningSettings.from_run(trained)
    sampling = choose_sampling(settings, "dev", trained["seed"])
    examples = load_examples(task, data, "dev", sampling, fold=settings.fold)
    told: dict[str, Any] = {}
    if best.kind == "tfidf":
        shutil.copyfile(best.folder / PIPELINE, output / PIPELINE)
        dev = predict_examples(best.folder, task, examples)
    else:
        dev, told = write_network(best, task, examples, output)
    test = read_predictions(best.evaluation / "predictions.parquet") if best.evaluation else None
    temperature = fit_temperature(dev)
    write_config(best, output, temperature)
    results = {
        "task": task.name,
        "labels": list(task.labels),
        "metric": metric,
        "arm": best.arm,
        "seed": best.seed,
        "kind": best.kind,
        "best_arm": choose_best(cells).arm,
        "best_is_random": choose_best(cells).is_random,
        "folds": best.measured.get("folds", 1),
        "arms": summarize_arms(cells, task.metrics),
        "temperature": temperature,
        "calibration": {
            split: compare_calibration(predictions, temperature)
            for split, predictions in (("dev", dev), ("test", test))
            if predictions
        },
        "against": compare_with_simple_models(best, cells, dev, test, metric),
        **told,
    }
    write_card(best, task, results, output)
    write_json(output / "results.json", results)
    return {name: value for name, value in results.items() if name != "arms"}


def read_cells(texts: Sequence[str], evaluations: Sequence[Path]) -> list[ExportCell]:
    """Return the cells of ARM=DIR, or DIR alone, whose arm has the folder's name."""
    if evaluations and len(evaluations) != len(texts):
        raise UserError(f"--evaluations: give one for each of the {len(texts)} --cells, or none")
    cells = []
    for place, text in enumerate(texts):
        arm, equals, folder = text.rpartition("=")
        path = Path(folder)
        evaluation = evaluations[place] if evaluations else None
        cells.append(ExportCell(arm if equals else path.name, path, evaluation))
    return cells


def check_cells(cells: Sequence[ExportCell]) -> None:
    """Raise UserError where a folder is none of model.finetune, or none can become the model."""
    for cell in cells:
        for name in ("task.json", "result.json"):
            if not (cell.folder / name).exists():
                raise UserError(
                    f"cells: {cell.folder} has no {name}; give folders made by model.finetune"
                )
    if not any(cell.is_candidate for cell in cells):
        raise UserError(
            "cells: the head of a frozen encoder has no class in transformers, and random "
            "weights are no candidate; give a fine-tuned encoder or TF-IDF too"
        )


def choose_best(cells: Sequence[ExportCell]) -> ExportCell:
    """Return the best seed of the arm whose seeds are the best on dev in the mean."""
    devs_of: dict[str, list[dict[str, float]]] = {}
    for cell in cells:
        devs_of.setdefault(cell.arm, []).append(cell.dev)
    best = max(devs_of, key=lambda arm: rank_arm(devs_of[arm]))
    return max((c for c in cells if c.arm == best), key=lambda cell: rank_dev_metrics(cell.dev))


def write_network(
    cell: ExportCell, task: Task, examples: Sequence[Example], output: Path
) -> tuple[Predictions, dict[str, Any]]:
    """Write weights, tokenizer and ONNX; return the predictions on dev and what int8 changed."""
    model, head, tokenizer = network.load_finetuned(cell.folder)
    features = head.make_featurizer(tokenizer)(examples)
    device = open_device("cpu", "fp32")
    logits = network.predict_logits(model, features, task.shape, device)
    dev = make_predictions(logits, features, examples, task)
    loaded: Any = model
    loaded.save_pretrained(output)
    names = INPUTS if getattr(loaded.config, "type_vocab_size", 0) > 1 else INPUTS[:2]
    write_tokenizer(cell.folder, output, head, names)
    write_pooling(loaded.config, head.max_length, output)
    export_onnx(model, names, output / ONNX)
    some = list(range(min(CHECKED_TEXTS, len(examples))))
    texts = [(examples[i].text, examples[i].pair) for i in some]
    exact = np.stack(network.predict_logits(model, [features[i] for i in some], task.shape, device))
    found = run_onnx(output / ONNX, output / "tokenizer.json", texts)
    difference = float(np.abs(found - exact).max())
    if difference > LARGEST_DIFFERENCE or (found.argmax(1) != exact.argmax(1)).any():
        raise UserError(
            f"{cell.folder}: the exported ONNX gives other logits than the network (by up to "
            f"{difference:.2g}); torch.onnx does not export this architecture rightly"
        )
    return dev, {"onnx": {"largest_difference": difference}, "int8": quantize(output, texts, exact)}


def write_pooling(config: Any, max_length: int, output: Path) -> None:
    """Write what sentence-transformers reads: it gives the state that the head classifies, that of
    the first token but for ModernBERT, which may have their mean.
    """
    kind = "sentence_transformers.models"
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{kind}.Transformer"},
        {"idx": 1, "name": "1", "path": POOLING, "type": f"{kind}.Pooling"},
    ]
    write_json(output / "modules.json", modules)
    write_json(output / "sentence_bert_config.json", {"max_seq_length": max_length})
    mode = getattr(config, "classifier_pooling", "cls")
    (output / POOLING).mkdir(exist_ok=True)
    pooling = {
        "word_embedding_dimension": config.hidden_size,
        "pooling_mode_cls_token": mode == "cls",
        "pooling_mode_mean_tokens": mode == "mean",
    }
    write_json(output / POOLING / "config.json", pooling)


def quantize(
    output: Path, texts: Sequence[tuple[str, str | None]], exact: np.ndarray
) -> dict[str, Any]:
    """Write model_quantized.onnx, unless it changes too many labels; return how many.

    Weights have seven bits: CPUs without VNNI add two products in 16 bits, where eight overflow.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    file = output / QUANTIZED
    quantize_dynamic(
        output / ONNX,
        file,
        per_channel=True,
        reduce_range=True,
        weight_type=QuantType.QInt8,
    )
    found = run_onnx(file, output / "tokenizer.json", texts)
    changed = int((found.argmax(1) != exact.argmax(1)).sum())
    is_kept = changed <= MOST_CHANGED * len(texts)
    if not is_kept:
        file.unlink()
        print(f"int8 changes {changed} of {len(texts)} labels of dev: it is not kept")
    return {"texts": len(texts), "changed": changed, "kept": is_kept}


class Logits(nn.Module):
    """Gives the logits alone, of inputs by their places."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        output = self.classifier(input_ids=input_ids, attention_mask=attention_mask, **types)
        logits: Tensor = output.logits
        return logits


def export_onnx(model: nn.Module, names: Sequence[str], file: Path) -> None:
    """Write a graph from ids [batch, tokens] to logits [batch, classes], both sides dynamic."""
    ids = torch.randint(5, 20, (2, 8))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    inputs["token_type_ids"] = torch.zeros_like(ids)
    shape = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    torch.onnx.export(
        Logits(model).eval(),
        tuple(inputs[name] for name in names),
        file,
        input_names=list(names),
        output_names=["logits"],
        dynamic_shapes=dict.fromkeys(names, shape),
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def run_onnx(
    file: Path, tokenizer_file: Path, texts: Sequence[tuple[str, str | None]]
) -> np.ndarray:
    """Return logits [texts, classes], as somebody computes them who has the folder alone."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.enable_padding()
    rows = []
    for start in range(0, len(texts), BATCH):
        part = [
            text if pair is None else (text, pair) for text, pair in texts[start : start + BATCH]
        ]
        encoded = tokenizer.encode_batch(part)
        columns = {
            "input_ids": [one.ids for one in encoded],
            "attention_mask": [one.attention_mask for one in encoded],
            "token_type_ids": [one.type_ids for one in encoded],
        }
        rows.append(session.run(["logits"], {n: np.array(columns[n], np.int64) for n in names})[0])
    return np.concatenate(rows)


def write_tokenizer(source: Path, output: Path, head: network.Head, names: Sequence[str]) -> None:
    """Write tokenizer.json, which cuts to the head's length, and tokenizer_config.json, with which
    transformers takes it as it is.
    """
    from transformers import AutoTokenizer

    tokenizer = network.load_tokenizer(str(source))
    tokenizer.enable_truncation(head.max_length)
    tokenizer.save(str(output / "tokenizer.json"))
    special = AutoTokenizer.from_pretrained(source).special_tokens_map
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": head.max_length,
        "model_input_names": list(names),
        **{name: str(token) for name, token in special.items() if isinstance(token, str)},
    }
    write_json(output / "tokenizer_config.json", config)


def fit_temperature(dev: Predictions) -> float:
    """Return the temperature with the smallest cross-entropy on dev (Guo et al. 2017)."""
    assert dev.probabilities is not None
    logits, labels = take_logarithms(dev.probabilities), dev.gold_array
    rows = np.arange(len(labels))

    def compute_loss(log_temperature: float) -> float:
        right = apply_temperature(logits, float(np.exp(log_temperature)))[rows, labels]
        return float(-np.log(np.maximum(right, LEAST_PROBABILITY)).mean())

    found = minimize_scalar(compute_loss, bounds=np.log(TEMPERATURES), method="bounded")
    return round(float(np.exp(found.x)), 4)


def compare_calibration(predictions: Predictions, temperature: float) -> dict[str, float]:
    """Return the expected calibration error without and with the temperature."""
    assert predictions.probabilities is not None
    probabilities = apply_temperature(take_logarithms(predictions.probabilities), temperature)
    tempered = replace(predictions, probabilities=probabilities)
    return {"before": compute_metric("ece", predictions), "after": compute_metric("ece", tempered)}


def write_config(cell: ExportCell, output: Path, temperature: float) -> None:
    """Add to config.json what transformers has no field for; write it where there is none."""
    file, told = output / "config.json", cell.described
    config = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    config["id2label"] = {str(place): label for place, label in enumerate(told["labels"])}
    config["label2id"] = {label: place for place, label in enumerate(told["labels"])}
    config["temperature"] = temperature
    own = {"kind": cell.kind, "task": told["task"]}
    if cell.kind == "transformers":
        own["max_length"] = told["max_length"]
    write_json(file, config | {"amazon_electra": own})


def summarize_arms(cells: Sequence[ExportCell], metrics: Sequence[str]) -> list[dict[str, Any]]:
    """Return for each arm the mean over its seeds of every metric on dev and on test."""
    rows = []
    for arm in dict.fromkeys(cell.arm for cell in cells):
        own = [cell for cell in cells if cell.arm == arm]
        splits = {"dev": [cell.dev for cell in own]}
        if all(cell.evaluation for cell in own):
            splits["test"] = [
                {name: metric["value"] for name, metric in cell.measured["metrics"].items()}
                for cell in own
            ]
        means = {
            split: {name: float(np.mean([one[name] for one in values])) for name in metrics}
            for split, values in splits.items()
        }
        rows.append({"arm": arm, "kind": own[0].kind, "seeds": len(own), **means})
    return rows


def compare_with_simple_models(
    best: ExportCell,
    cells: Sequence[ExportCell],
    dev: Predictions,
    test: Predictions | None,
    metric: str,
) -> dict[str, dict[str, float]]:
    """Return the difference on test to the class that is most frequent on dev, to TF-IDF, and to
    the arm of the registry's champion.
    """
    if test is None:
        return {}
    [(majority, _)] = Counter(dev.labels).most_common(1)
    one_class = replace(test, predictions=[majority] * len(test))
    others = {"majority class": one_class}
    others |= {
        cell.arm: read_predictions(cell.evaluation / "predictions.parquet")
        for cell in cells
        if cell.evaluation
        and cell.arm != best.arm
        and (cell.kind == "tfidf" or cell.arm == "champion")
    }
    found = {name: compare_arms(METRICS[metric], [test], [other]) for name, other in others.items()}
    return {
        name: {"difference": c.difference, "low": c.low, "high": c.high}
        for name, c in found.items()
    }


def write_card(cell: ExportCell, task: Task, results: Mapping[str, Any], output: Path) -> None:
    """Write README.md: results, licence, labels, calibration, what int8 changes."""
    from huggingface_hub import EvalResult, ModelCardData

    told = json.loads((cell.folder / "run.json").read_text(encoding="utf-8"))
    encoder = describe_start(Path(told["encoder"])) if Path(told["encoder"]).is_dir() else {}
    license = encoder.get("license", "unknown")
    measured = cell.measured.get("metrics", {})
    data = ModelCardData(
        license=license if license != "unknown" else None,
        library_name="transformers" if cell.kind == "transformers" else "scikit-learn",
        pipeline_tag="text-classification",
        model_name=NAME,
        eval_results=[
            EvalResult(
                task_type="text-classification",
                dataset_type=task.name,
                dataset_name=task.name,
                dataset_split="test",
                metric_type=METRIC_TYPES.get(name, name),
                metric_name=METRICS[name].title,
                metric_value=round(value["value"], 4),
            )
            for name, value in measured.items()
            if np.isfinite(value["value"])
        ],
    )
    usage = NETWORK_USAGE if cell.kind == "transformers" else PIPELINE_USAGE
    text = render_template(
        "classifier_card.md.j2",
        front_matter=data.to_yaml(),
        name=NAME,
        question=task.question or task.source,
        labels=", ".join(task.labels),
        usage=usage,
        results=results,
        encoder=encoder,
        arms=build_arm_table(results),
        format_number=format_number,
        format_change=format_change,
    )
    (output / "README.md").write_text(text, encoding="utf-8")


NETWORK_USAGE = """from transformers import pipeline

classify = pipeline("text-classification", model="THIS FOLDER", truncation=True)
classify(["A lamp that broke on the first day."])"""
PIPELINE_USAGE = """import skops.io

classifier = skops.io.load("THIS FOLDER/model.skops")
classifier.predict(["A lamp that broke on the first day."])"""


def build_arm_table(results: Mapping[str, Any]) -> Table:
    """Return the metrics of every arm on dev, and on test where all have been measured there."""
    splits = [split for split in ("dev", "test") if all(split in row for row in results["arms"])]
    places = [(split, name) for split in splits for name in results["arms"][0]["dev"]]
    return Table(
        ["arm", "seeds", *(f"{METRICS[name].title}, {split}" for split, name in places)],
        [
            [row["arm"], str(row["seeds"])]
            + [format_number(name, row[split][name]) for split, name in places]
            for row in results["arms"]
        ],
    )


if __name__ == "__main__":
    main(run)
